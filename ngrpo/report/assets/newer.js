"use strict";
// Offers to reload once a newer version of the page was written. The style sheet of the newest version shows the offer on
// every page of another version; it is looked up again and again, also where the page was opened as a file, which may
// not read other files but may be styled by them.
(() => {
  const SECONDS = 15;
  document.getElementById("reload").addEventListener("click", () => location.reload());
  let current = document.getElementById("version");
  if (!current) return; // the run has ended
  const source = current.getAttribute("href");

  function look() {
    if (document.hidden) return;
    const next = current.cloneNode();
    next.href = `${source}?${Date.now()}`;
    next.addEventListener("load", () => {
      current.remove();
      current = next;
    });
    next.addEventListener("error", () => {
      next.remove();
      clearInterval(timer); // the page was moved away from its run
    });
    current.after(next);
  }

  const timer = setInterval(look, SECONDS * 1000);
  document.addEventListener("visibilitychange", look);
})();
