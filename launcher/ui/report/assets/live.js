"use strict";
// Keeps a page of `vastrun ui` as its run is now: asks for it again, and replaces the parts that have changed.
(() => {
  const LONGEST_MS = 60000;
  const main = document.querySelector("main");
  const partsOf = (root) => new Map([...root.querySelector("main").children].map((part) => [part.id || part.tagName, part]));
  // As they came: what draws the page changes them.
  const known = new Map([...partsOf(document)].map(([name, part]) => [name, part.outerHTML]));
  let refresh = Number(document.body.dataset.refresh) * 1000;
  let wait = refresh;
  let timer = 0;
  let isLooking = false;

  const sign = (words, kind) => {
    const place = document.querySelector(".live");
    place.textContent = words;
    place.classList.toggle("lost", kind === "lost");
    if (kind === "lost") place.setAttribute("aria-live", "polite");
  };

  // What its reader did to a part is done to the new one.
  function carry(former, part) {
    const both = (what, act) => {
      const now = part.querySelectorAll(what);
      former.querySelectorAll(what).forEach((one, at) => now[at] && act(one, now[at]));
    };
    both("details", (one, other) => { other.open = one.open; });
    both(".scroll, .tall", (one, other) => {
      // A log that is seen to its end is followed.
      const atEnd = one.scrollTop + one.clientHeight >= one.scrollHeight - 4;
      other.scrollLeft = one.scrollLeft;
      other.scrollTop = atEnd && one.scrollTop > 0 ? other.scrollHeight : one.scrollTop;
    });
    both("table.results", (one, other) => {
      const [column, order] = (one.dataset.sorted ?? "").split(" ");
      const name = other.tHead.rows[0].cells[column];
      for (let tries = 0; order && name && name.getAttribute("aria-sort") !== order && tries < 2; tries++) {
        name.querySelector("button").click();
      }
    });
  }

  function replace(name, fresh) {
    const former = partsOf(document).get(name);
    // A curve that somebody looks at closely stays until they look away.
    if (former?.querySelector("figure") && former.matches(":hover")) return false;
    const hadFocus = former?.contains(document.activeElement) ? document.activeElement : null;
    const controls = "a, button, summary, [tabindex]";
    const place = hadFocus ? [...former.querySelectorAll(controls)].indexOf(hadFocus) : -1;
    const part = document.importNode(fresh, true);
    if (former) former.replaceWith(part);
    else main.append(part);
    part.dispatchEvent(new CustomEvent("vastrun:replaced", { bubbles: true }));
    if (former) carry(former, part);
    if (place >= 0) part.querySelectorAll(controls)[place]?.focus({ preventScroll: true });
    return true;
  }

  function take(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const parts = partsOf(fresh);
    for (const [name, part] of partsOf(document)) {
      if (!parts.has(name)) {
        part.remove();
        known.delete(name);
      }
    }
    for (const [name, part] of parts) {
      const markup = part.outerHTML;
      if (known.get(name) !== markup && replace(name, part)) known.set(name, markup);
    }
    // In their order: a part may be new.
    const now = partsOf(document);
    let before = null;
    for (const name of parts.keys()) {
      const part = now.get(name);
      if (part && part.previousElementSibling !== before) before ? before.after(part) : main.prepend(part);
      before = part ?? before;
    }
    document.title = fresh.title;
    refresh = Number(fresh.body.dataset.refresh ?? 0) * 1000;
  }

  async function look() {
    if (isLooking) return;
    if (document.hidden) return later(refresh);
    isLooking = true;
    try {
      const answer = await fetch(location.href, {
        cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(LONGEST_MS),
      });
      if (!answer.ok) throw new Error(String(answer.status));
      take(await answer.text());
      wait = refresh;
    } catch (error) {
      sign("not connected: vastrun ui does not answer", "lost");
      wait = Math.min(LONGEST_MS, wait * 2);
    }
    isLooking = false;
    if (refresh) later(wait);
  }

  // One look is due at a time, however often its reader comes back to the page.
  const later = (after) => {
    clearTimeout(timer);
    timer = setTimeout(look, after);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && refresh) look(); });
  later(refresh);
})();
