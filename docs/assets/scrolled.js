"use strict";
// Code and tables that are wider than their place are scrolled by keys, too.
(() => {
  const WIDE = ".md-typeset pre > code, .md-typeset__scrollwrap";
  const reach = () => {
    for (const box of document.querySelectorAll(WIDE)) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
})();
