"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();
  const theme = () => root.dataset.theme ?? (prefersDark.matches ? "dark" : "light");

  // Rows are stored by column; a constant column is stored as one value.
  function rowsOf(figure, trace = null) {
    const rows = [];
    for (const part of page.data[figure]) {
      const names = Object.keys(part.columns);
      for (let i = 0; i < part.rows; i += 1) {
        const row = {};
        for (const name of names) {
          const column = part.columns[name];
          row[name] = Array.isArray(column) ? column[i] : column;
        }
        if (trace === null || row.trace === trace) rows.push(row);
      }
    }
    return rows;
  }

  const figureOf = (chart) => chart.id.slice(0, chart.id.lastIndexOf("-"));

  // The stacked parts of a chart have the same width, which leaves space for axes and titles.
  const AXES_PX = 84;
  function sized(vega, width) {
    if (!vega.vconcat) return vega;
    return { ...vega, vconcat: vega.vconcat.map((part) => ({ ...part, width: Math.max(width - AXES_PX, 80) })) };
  }

  // On a narrow screen, row labels leave most of the width to the chart, and legend entries are stacked.
  const NARROW_PX = 420;
  function themed(width) {
    const config = page.themes[theme()];
    if (width >= NARROW_PX) return config;
    const legend = { ...config.legend, layout: { bottom: { direction: "vertical" } } };
    return { ...config, axisY: { ...config.axisY, labelLimit: 100 }, legend };
  }

  // Space for the symbol of a legend entry, and for the gap to the next entry, pixels.
  const SYMBOL_PX = 40;
  const isCut = (chart) => [...chart.querySelectorAll(".role-legend")].some((legend) => legend.textContent.includes("…")
    || legend.getBoundingClientRect().right > chart.getBoundingClientRect().right + 1);

  async function draw(chart) {
    const stacked = Boolean(page.specs[chart.id].vega.vconcat);
    const width = chart.clientWidth;
    const state = `${theme()} ${stacked ? width : width < NARROW_PX ? "narrow" : "wide"}`;
    if (chart.dataset.drawn === state) return;
    chart.dataset.drawn = state;
    const { trace, vega: stored } = page.specs[chart.id];
    const vega = sized(stored, width);
    const datasets = { rows: rowsOf(figureOf(chart), trace) };
    // On a narrow screen, a legend gets fewer columns if its names would otherwise be truncated.
    for (let most = 3; most > 0; most -= 1) {
      const spec = JSON.parse(JSON.stringify(vega), (key, value) => {
        if (key === "legend" && value) {
          const columns = value.columns && Math.min(value.columns, most);
          const labelLimit = Math.max(value.labelLimit ?? 0, width / (columns ?? most) - SYMBOL_PX);
          return { ...value, columns, labelLimit: Math.min(labelLimit, width - SYMBOL_PX) };
        }
        return key === "labelLimit" ? Math.min(value, Math.max(width / 3, 90)) : value;
      });
      const result = await vegaEmbed(chart, { ...spec, datasets }, {
        actions: false, renderer: "svg", config: themed(width),
      });
      views.get(chart)?.finalize();
      views.set(chart, result);
      if (!isCut(chart)) break;
    }
    chart.querySelector("svg")?.setAttribute("aria-hidden", "true");
    chart.dataset.settled = state;
  }

  const charts = [...document.querySelectorAll(".chart")];
  const drawAll = () => Promise.all(charts.map(draw));
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { draw(entry.target); near.unobserve(entry.target); }
  }, { rootMargin: "800px" });
  charts.forEach((chart) => near.observe(chart));
  const redraw = () => charts.filter((chart) => chart.dataset.drawn).forEach(draw);

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    redraw();
  });
  prefersDark.addEventListener("change", redraw);
  addEventListener("resize", redraw);
  document.getElementById("print").addEventListener("click", async () => { await drawAll(); print(); });
  // Print in light colours with all sections opened; the data of figures stays folded.
  let screenTheme;
  let unfolded = [];
  addEventListener("beforeprint", () => {
    screenTheme = root.dataset.theme;
    root.dataset.theme = "light";
    unfolded = [...document.querySelectorAll("details:not(.data, [open])")];
    for (const fold of unfolded) fold.open = true;
    drawAll();
  });
  addEventListener("afterprint", () => {
    for (const fold of unfolded) fold.open = false;
    if (screenTheme) root.dataset.theme = screenTheme; else delete root.dataset.theme;
    redraw();
  });

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // Saved pictures have light colours, independent of the theme of the page.
  const SAVED_PX = 800;
  async function onPaper(chart) {
    const { trace, vega } = page.specs[chart.id];
    const place = document.createElement("div");
    const spec = vega.vconcat ? sized(vega, SAVED_PX) : { ...vega, width: SAVED_PX };
    const datasets = { rows: rowsOf(figureOf(chart), trace) };
    return vegaEmbed(place, { ...spec, datasets }, {
      actions: false, renderer: "svg", config: { ...page.themes.light, background: "#ffffff" },
    });
  }
  function saves(kind, make) {
    for (const button of document.querySelectorAll(`.save-${kind}`)) {
      button.addEventListener("click", async () => {
        const chart = document.getElementById(button.dataset.chart);
        const drawn = await onPaper(chart);
        await make(chart, drawn.view);
        drawn.finalize();
      });
    }
  }
  saves("svg", async (chart, view) => save(`${chart.id}.svg`, "image/svg+xml", await view.toSVG()));
  saves("png", async (chart, view) => {
    const canvas = await view.toCanvas(2);
    save(`${chart.id}.png`, "image/png", await new Promise((done) => { canvas.toBlob(done, "image/png"); }));
  });

  for (const button of document.querySelectorAll(".copy")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {  // The browser forbids it; the selected text can be copied with the keyboard.
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  }

  const quoted = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  for (const button of document.querySelectorAll(".save-csv")) {
    button.addEventListener("click", () => {
      const rows = rowsOf(button.dataset.figure);
      const names = Object.keys(rows[0]);
      const lines = [names, ...rows.map((row) => names.map((name) => row[name]))];
      save(`${button.dataset.figure}.csv`, "text/csv", lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n");
    });
  }

  for (const button of document.querySelectorAll(".save-json")) {
    button.addEventListener("click", () => {
      save(`${button.dataset.figure}.json`, "application/json", JSON.stringify(rowsOf(button.dataset.figure), null, 1));
    });
  }

  const MOST_ROWS = 500;
  function fill(details) {
    const place = details.querySelector(".scroll");
    if (place.firstChild) return;
    const rows = rowsOf(details.dataset.figure);
    const names = Object.keys(rows[0]);
    const table = document.createElement("table");
    table.className = "sortable";
    const head = table.createTHead().insertRow();
    for (const name of names) {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (typeof rows[0][name] === "string") cell.className = "text";
      cell.textContent = name;
      head.append(cell);
    }
    for (const row of rows.slice(0, MOST_ROWS)) {
      const line = table.createTBody().insertRow();
      for (const name of names) {
        const cell = line.insertCell();
        const value = row[name];
        cell.textContent = value === null ? "–" : typeof value === "number" ? value.toLocaleString("en") : value;
        if (typeof value === "string") cell.className = "text"; else cell.dataset.value = value ?? "";
      }
    }
    place.append(table);
    if (rows.length > MOST_ROWS) {
      const rest = document.createElement("p");
      rest.className = "quiet";
      rest.textContent = `The first ${MOST_ROWS} of ${rows.length.toLocaleString("en")} rows; the CSV has them all.`;
      place.after(rest);
    }
    makeSortable(table);
  }
  for (const details of document.querySelectorAll("details.data")) {
    details.addEventListener("toggle", () => { if (details.open) fill(details); });
  }

  // Row groups (a trace with its published row) are sorted as units; missing values are last.
  function makeSortable(table) {
    if (table.tBodies.length < 2) return;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (body) => {
          const cell = body.rows[0].cells[column];
          if (cell.dataset.value === undefined) return cell.textContent;
          return cell.dataset.value === "" ? null : Number(cell.dataset.value);
        };
        const order = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
        const bodies = [...table.tBodies].map((body) => [key(body), body]);
        bodies.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : down ? order(b, a) : order(a, b)));
        table.append(...bodies.map(([, body]) => body));
      });
    });
  }
  document.querySelectorAll("table.sortable").forEach(makeSortable);
})();
