// Keys: j and k move between rows, Enter opens one, / goes to the search. Pages work without this.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    const search = document.querySelector("[data-key='/']") || document.getElementById("find");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
    return;
  }
  if (event.key !== "j" && event.key !== "k") return;
  const links = [...document.querySelectorAll("[data-row] [data-go], .rows td:is(:nth-child(2), :nth-child(4)) > a")];
  if (!links.length) return;
  const now = links.indexOf(document.activeElement);
  const next = event.key === "j" ? Math.min(now + 1, links.length - 1) : Math.max(now - 1, 0);
  event.preventDefault();
  links[next].focus();
});
