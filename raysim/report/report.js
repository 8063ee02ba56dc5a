// Values on hover, a CSV file of each chart and table, and tables that can be sorted. The page is complete without this script.
(() => {
  "use strict";
  const digits = (value, count) => Number(value.toPrecision(count)).toString();
  const scaled = (value, step, units) => {
    const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1) / Math.log10(step))));
    return `${digits(value / step ** power, 4)} ${units[power]}`;
  };
  const formats = {
    share: (value) => `${digits(100 * value, 4)} %`,
    bytes: (value) => scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]),
    seconds: (value) => `${digits(value, 3)} s`,
    number: (value) => digits(value, 4),
  };
  const element = (name, text = "", parent = null) => {
    const made = document.createElement(name);
    made.textContent = text;
    parent?.append(made);
    return made;
  };

  // A text that begins like a formula, such as -1+cmd, must not become one in a spreadsheet; a number stays one.
  const cell = (value) => {
    const text = String(value ?? "");
    const plain = /^\s*[=+@-]|^[\t\r\n]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  const addSave = (parent, name, rows) => {
    const button = element("button", "CSV", parent);
    button.type = "button";
    button.className = "csv";
    button.title = `Save as CSV: ${name}`;
    button.addEventListener("click", () => {
      const text = rows().map((row) => row.map(cell).join(",") + "\n").join("");
      const link = element("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = `${document.title} ${name}`.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-") + ".csv";
      link.click();
      URL.revokeObjectURL(link.href);
    });
  };

  const tip = element("div", "", document.body);
  tip.className = "tip";
  tip.hidden = true;
  const place = (panel, at) => panel.ticks[panel.places.indexOf(at)] ?? at;
  const show = (event, svg, x, panel) => {
    const box = svg.getBoundingClientRect();
    const [left, , width] = panel.frame;
    const [low, high] = panel.x;
    const pointed = low + (((event.clientX - box.left) / box.width - left) / width) * (high - low);
    const every = panel.lines.flatMap((line) => line.at);
    const at = every.reduce((best, each) => (Math.abs(each - pointed) < Math.abs(best - pointed) ? each : best), every[0]);
    tip.replaceChildren(element("b", `${x} ${place(panel, at)}`.trim()));
    const table = element("table", "", tip);
    for (const line of panel.lines) {
      const index = line.at.indexOf(at);
      if (index < 0 || line.values[index] === null) continue;
      const row = element("tr", "", table);
      element("i", "", element("td", "", row)).style.background = line.colour;
      element("td", line.name, row);
      const spread = line.std.length ? ` ± ${formats[panel.kind](line.std[index])}` : "";
      element("td", formats[panel.kind](line.values[index]) + spread, row);
    }
    tip.hidden = false;
    const right = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, right)}px`;
    const below = event.clientY + 16;
    tip.style.top = `${below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : below}px`;
  };
  const hide = () => { tip.hidden = true; };
  addEventListener("scroll", hide, { passive: true });

  for (const figure of document.querySelectorAll("figure[data-name]")) {
    const data = figure.querySelector("script");
    if (!data) continue;
    const { x, panels } = JSON.parse(data.textContent);
    figure.querySelectorAll(".panels > svg").forEach((svg, index) => {
      const panel = panels[index];
      if (!panel.lines.length) return;
      for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, (event) => show(event, svg, x, panel));
      svg.addEventListener("pointerleave", hide);
    });
    addSave(figure, figure.dataset.name, () => [
      ["panel", "name", x || "at", "value", "std"],
      ...panels.flatMap((panel) => panel.lines.flatMap((line) => line.at.map(
        (at, index) => [panel.title, line.name, place(panel, at), line.values[index], line.std[index]]))),
    ]);
  }
  for (const table of document.querySelectorAll("table[data-name]")) {
    const tools = element("div");
    tools.className = "tools";
    table.parentElement.after(tools);
    addSave(tools, table.dataset.name, () => {
      const head = [...table.tHead.rows].at(-1).cells;
      const rows = [["part", ...[...head].map((each) => each.dataset.name || each.textContent.trim())]];
      let part = "";
      for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
        if (row.className === "target") part = row.textContent.trim();
        else rows.push([part, ...[...row.cells].map((each) => each.title || each.textContent.trim())]);
      }
      return part ? rows : rows.map((row) => row.slice(1));
    });
  }

  // A click on a heading sorts the rows, a second one in the other direction; rows without a value stay last.
  const shown = (row, column) => row.cells[column].title || row.cells[column].textContent.trim();
  const compare = (one, other) => {
    const [a, b] = [one, other].map((text) => (text === "" || text === "–" ? NaN : Number(text.replaceAll(",", ""))));
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || one.localeCompare(other);
    return a - b;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...[...table.tHead.rows].at(-1).cells].forEach((heading, column) => {
      const button = element("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const falls = heading.ariaSort === "ascending";
        for (const each of heading.parentElement.cells) each.removeAttribute("aria-sort");
        heading.ariaSort = falls ? "descending" : "ascending";
        const rows = [...table.tBodies[0].rows];
        const absent = (row) => shown(row, column) === "–";
        rows.sort((one, other) => absent(one) - absent(other)
          || (falls ? -1 : 1) * compare(shown(one, column), shown(other, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }
})();
