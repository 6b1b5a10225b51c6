// Sorting, filtering and deep links (#sort=auroc&dir=desc&dataset=x&split=group&q=text). The page is whole without it.
(function () {
  "use strict";

  function sortTable(table, index, direction) {
    const body = table.tBodies[0];
    const value = (row) => {
      const cell = row.cells[index];
      return cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
    };
    const numeric = table.tHead.rows[0].cells[index].dataset.type === "number";
    const sign = direction === "descending" ? -1 : 1;
    const rows = Array.from(body.rows);
    rows.sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === ""); // what has no value stays last either way
      return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true }));
    });
    rows.forEach((row) => body.appendChild(row));
    Array.from(table.tHead.rows[0].cells).forEach((cell, i) =>
      cell.setAttribute("aria-sort", i === index ? direction : "none"));
  }

  function natural(header) {
    return header.dataset.type === "number" ? "descending" : "ascending";
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    Array.from(table.tHead.rows[0].cells).forEach((header, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      header.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const now = header.getAttribute("aria-sort");
        const next = now === "none" ? natural(header) : now === "ascending" ? "descending" : "ascending";
        sortTable(table, index, next);
        if (table.id === "leaderboard-table") remember({ sort: header.dataset.key, dir: next.replace("ending", "") });
      });
    });
  });

  const table = document.getElementById("leaderboard-table");
  const form = document.getElementById("filters");
  if (table && form) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { filter(); remember({}); });
    form.addEventListener("reset", () => setTimeout(() => { filter(); remember({}); }));
    restore();
    window.addEventListener("hashchange", restore);
  }

  function filter() {
    const dataset = form.elements.dataset.value, split = form.elements.split.value;
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    Array.from(table.tBodies[0].rows).forEach((row) => {
      const content = row.textContent.toLowerCase();
      const fits = (!dataset || row.dataset.dataset === dataset) && (!split || row.dataset.split === split) &&
        words.every((word) => content.includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    document.getElementById("shown").textContent = shown + " of " + table.tBodies[0].rows.length + " rows";
  }

  function remember(changes) {
    const now = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    const wanted = { dataset: form.elements.dataset.value, split: form.elements.split.value, q: form.elements.q.value };
    Object.entries(Object.assign(wanted, changes)).forEach(([key, value]) => {
      if (value) now.set(key, value); else now.delete(key);
    });
    // a page inside a frame (snakemake --report) may not change its address: then there is no deep link
    try { history.replaceState(null, "", "#" + now); } catch (error) { /* nothing to mend */ }
  }

  function restore() {
    const hash = location.hash.includes("=") ? location.hash.slice(1) : "";
    const wanted = new URLSearchParams(hash);
    if (hash) ["dataset", "split", "q"].forEach((key) => { form.elements[key].value = wanted.get(key) || ""; });
    const headers = Array.from(table.tHead.rows[0].cells);
    const index = headers.findIndex((header) => header.dataset.key === wanted.get("sort"));
    if (index >= 0) {
      const direction = { asc: "ascending", desc: "descending" }[wanted.get("dir")] || natural(headers[index]);
      sortTable(table, index, direction);
    }
    filter();
    if (hash) document.getElementById("leaderboard").scrollIntoView();
  }

  // print opens what is folded, and folds it again afterwards
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
})();
