"use strict";
// Draws the curves of a page, sorts its tables, and shows one point of a batch in its table and its curves. Where parts of
// a page are replaced (live.js), it is told so, and does the same to the new ones.
(() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (value) => {
    if (value == null) return "–";
    const short = Number(value.toPrecision(4));
    return short && Math.abs(short) < 1e-4 ? short.toExponential() : short.toString();
  };
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
  const count = (value) => {
    const unit = units.find(([least]) => value >= least);
    if (!unit) return value == null ? "–" : value.toLocaleString("en");
    const size = unit[1] === "k" ? 1e3 : unit[0];
    return Number((value / size).toPrecision(4)) + unit[1];
  };
  const button = (words, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = words;
    made.addEventListener("click", act);
    return made;
  };

  // Curves.

  let drawn = [];

  // Of a logarithmic axis: each digit of each power of ten, and what of that is written.
  const digits = (u, axis, low, high) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (let digit = 1; digit < 10; digit++) {
        const value = Number(`${digit}e${power}`);
        if (value >= low && value <= high) found.push(value);
      }
    }
    return found;
  };
  const written = (u, values) => {
    const powers = Math.log10(values.at(-1) / values[0]);
    const every = Math.ceil(powers / 6);
    const shows = (value) => {
      const [digit, power] = value.toExponential().split("e").map(Number);
      return powers > 2.5 ? digit === 1 && power % every === 0 : [1, 2, 5].includes(digit);
    };
    const all = values.filter(shows).length < 2;
    return values.map((value) => (all || shows(value) ? number(value) : ""));
  };

  function axes(logarithmic) {
    const common = {
      stroke: color("--faint"), font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
      grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1, size: 4 },
    };
    const few = (u, values) => values.map((value) => (value == null ? "" : number(value)));
    return [
      { ...common, values: (u, values) => values.map(count), space: 70, size: 34 },
      logarithmic
        ? { ...common, values: written, splits: digits, filter: (u, values) => values, size: 62 }
        : { ...common, values: few, size: 62, space: 38 },
    ];
  }

  function curves(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot");
    const many = data.many === true;
    const table = many
      ? [data.x, ...data.curves]
      : data.series.length > 1
        ? uPlot.join(data.series.map((one) => [one.x, one.y]))
        : [data.series[0].x, data.series[0].y];
    let logarithmic = data.log;
    let chart = null;

    function series() {
      if (many) {
        return data.curves.map((_, at) => ({
          label: "#" + data.points[at], stroke: color("--q" + data.ranks[at]),
          width: 1, alpha: data.points.length > 150 ? 0.4 : 1, spanGaps: true, points: { show: false },
        }));
      }
      const colors = ["accent", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];
      return data.series.map((one, at) => ({
        label: one.name, stroke: color("--" + colors[at % 8]), width: 1.6, spanGaps: true,
        points: { show: one.x.length < 40, size: 5, fill: color("--" + colors[at % 8]) },
        value: (u, value) => number(value),
      }));
    }

    function draw() {
      const width = plot.clientWidth;
      if (!width) return;
      if (chart) chart.destroy();
      chart = new uPlot({
        width, height: many ? 360 : 210, axes: axes(logarithmic),
        scales: {
          x: { time: false },
          y: logarithmic ? { distr: 3, range: (u, low, high) => [low / 1.15, high * 1.15] } : {},
        },
        series: [{ label: "step", value: (u, value) => count(value) }, ...series()],
        legend: { show: !many }, focus: { alpha: many ? 0.12 : 1 },
        cursor: {
          sync: many ? undefined : { key: "step" }, focus: { prox: many ? 24 : -1 },
          points: { show: !many }, drag: { x: true, y: false },
        },
        hooks: many ? { setSeries: [(u, at) => at && !chosen.quiet && choose(data.points[at - 1], "curves")] } : {},
      }, table, plot);
      back.hidden = true;
      chart.hooks.setScale = [(u, key) => {
        if (key === "x") back.hidden = u.scales.x.min <= table[0][0] && u.scales.x.max >= table[0].at(-1);
      }];
    }

    const tools = document.createElement("div");
    tools.className = "tools";
    const back = button("show all", draw);
    back.hidden = true;
    const positive = table.slice(1).every((ys) => ys.every((y) => y == null || y > 0));
    const scale = button("log", () => {
      logarithmic = !logarithmic;
      scale.setAttribute("aria-pressed", logarithmic);
      draw();
    });
    scale.title = "logarithmic scale";
    scale.setAttribute("aria-pressed", logarithmic);
    tools.append(back, ...(positive ? [scale] : []));
    figure.prepend(tools);
    new ResizeObserver(() => {
      if (!plot.isConnected) return;
      if (!chart) draw();
      else if (plot.clientWidth && chart.width !== plot.clientWidth) {
        chart.setSize({ width: plot.clientWidth, height: chart.height });
      }
    }).observe(plot);
    drawn.push({
      plot,
      draw,
      focus: (point) => {
        if (!many || !chart) return;
        const at = data.points.indexOf(point);
        chart.setSeries(at < 0 ? null : at + 1, { focus: true });
      },
    });
    draw();
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((one) => one.draw()));

  // A table of results: a click on a name sorts by that column, another one the other way round.

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent;
  };
  const compared = (one, other) => {
    if (one === "" || other === "") return (one === "") - (other === "");
    const difference = Number(one) - Number(other);
    return Number.isNaN(difference) ? one.localeCompare(other, "en", { numeric: true }) : difference;
  };

  function sorts(table) {
    const names = [...table.tHead.rows[0].cells];
    names.forEach((name, column) => {
      name.querySelector("button")?.addEventListener("click", () => {
        const rises = name.getAttribute("aria-sort") !== "ascending";
        names.forEach((other) => other.removeAttribute("aria-sort"));
        name.setAttribute("aria-sort", rises ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row, column), row]);
        rows.sort(([one], [other]) => {
          // What has no value comes last, whichever way.
          if (one === "" || other === "") return compared(one, other);
          return rises ? compared(one, other) : compared(other, one);
        });
        table.tBodies[0].append(...rows.map(([, row]) => row));
        table.dataset.sorted = `${column} ${name.getAttribute("aria-sort")}`;
      });
    });
  }

  // One point of a batch, in the table and among the curves.

  let told = null;
  const chosen = { point: null, quiet: false };
  let rows = new Map();

  function points() {
    told = document.querySelector(".chosen");
    rows = new Map([...document.querySelectorAll("[data-point]")].map((row) => [Number(row.dataset.point), row]));
  }

  function choose(point, from) {
    if (point === chosen.point) return;
    rows.get(chosen.point)?.classList.remove("on");
    chosen.point = point;
    const row = rows.get(point);
    row?.classList.add("on");
    if (told && row) told.textContent = row.dataset.told;
    if (from !== "curves") {
      chosen.quiet = true;
      drawn.forEach((one) => one.focus(point));
      chosen.quiet = false;
    }
  }

  const pointAt = (event) => event.target.closest?.("[data-point]")?.dataset.point;
  for (const kind of ["pointerover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const point = told ? pointAt(event) : undefined;
      if (point !== undefined) choose(Number(point), "page");
    });
  }

  function dress(part) {
    drawn = drawn.filter((one) => one.plot.isConnected);
    part.querySelectorAll("figure[data-chart]").forEach(curves);
    part.querySelectorAll("table.results").forEach(sorts);
    points();
  }

  dress(document);
  document.addEventListener("vastrun:replaced", (event) => dress(event.target));
})();
