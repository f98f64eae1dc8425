for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending";
    const value = (row) => row.cells[head.cellIndex].dataset.v;
    const order = head.classList.contains("n") ? (a, b) => a - b : (a, b) => a.localeCompare(b);
    const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * order(value(a), value(b)));
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  });
}
