"use strict";
// Draws the charts in the colours of the theme; again when the theme changes, and for paper.
(() => {
  const drawings = JSON.parse(document.getElementById("drawings").textContent);
  const said = document.getElementById("said");
  const SERIES = 8; // colours of lines
  const FEW = 30; // points up to which each is marked: a line of one point is not drawn
  const FONT = "12px system-ui, sans-serif";
  const STEPS = [1, 2, 5].flatMap((n) => [n, n * 10, n * 100, n * 1e3, n * 1e4, n * 1e5]).sort((a, b) => a - b);
  const drawn = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faint = (name, share) => `color-mix(in srgb, ${colour(name)} ${share}%, transparent)`;
  const seriesName = (line) => `--series-${(line.colour % SERIES) + 1}`;

  function shown(value, digits = 4) {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (size < 1e-12) return "0";
    if (size >= 1e4) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
    if (size >= 1e-4) return String(Number(value.toPrecision(digits)));
    return value.toExponential(2).replace(/\.?0+e/, "e");
  }

  function axis(title, more) {
    return {
      label: title,
      labelFont: FONT,
      labelSize: 22,
      labelGap: 2,
      font: FONT,
      stroke: colour("--quiet"),
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1, size: 5 },
      values: (_, splits) => splits.map((value) => shown(value)),
      ...more,
    };
  }

  function widthOf(plot, labels) {
    plot.ctx.save();
    plot.ctx.font = FONT;
    const widest = Math.max(0, ...(labels ?? []).map((label) => plot.ctx.measureText(label ?? "").width));
    plot.ctx.restore();
    return Math.ceil(widest) + 14;
  }

  const yAxis = (title, more) => axis(title, { size: widthOf, ...more });
  // Of a logarithmic axis, the powers of ten.
  const powers = (_, splits) => splits.map((value) => (Number.isInteger(Number(Math.log10(value).toFixed(6))) ? value : null));
  const logAxis = (title) =>
    yAxis(title, {
      filter: powers,
      grid: { stroke: colour("--grid"), width: 1, filter: powers },
      ticks: { stroke: colour("--line"), width: 1, size: 5, filter: powers },
    });
  const iterationAxis = (title) => axis(title, { size: 32, incrs: STEPS, space: 45 });

  function yScale(drawing) {
    if (drawing.logY) return { distr: 3, log: 10, range: (_, min, max) => [10 ** Math.floor(Math.log10(min / 1.2)), 10 ** Math.ceil(Math.log10(max * 1.2))] };
    if (drawing.share && drawing.stacked) return { range: [0, 1] };
    const side = { pad: 0.1, soft: 0, mode: 3 };
    const range = drawing.share ? { min: { ...side, hard: 0 }, max: { ...side, soft: 1, hard: 1 } } : { min: side, max: side };
    return { range };
  }

  function xScale(drawing, xs) {
    const [first, last] = [xs[0], xs.at(-1)];
    if (drawing.logX) return { time: false, distr: 3, log: 2, range: [first / 1.15, last * 1.15] };
    return first === last ? { time: false, range: [first - 1, first + 1] } : { time: false };
  }

  // Every line as columns of one table; a stacked one on top of those before it.
  function aligned(drawing) {
    const tables = drawing.series.map((line) => [line.x, line.y, ...(line.low.length ? [line.low, line.high] : [])]);
    const [xs, ...columns] = uPlot.join(tables);
    if (!drawing.stacked) return { xs, columns, raw: columns };
    const sums = xs.map(() => 0);
    return { xs, raw: columns, columns: columns.map((column) => column.map((y, i) => (sums[i] += y ?? 0))) };
  }

  function lines(drawing) {
    const { xs, columns, raw } = aligned(drawing);
    const series = [{ label: drawing.logX ? "k" : drawing.xTitle, value: (_, x) => shown(x) }];
    const bands = [];
    const bounds = new Map(); // place of a line -> places of its bounds
    for (const line of drawing.series) {
      const place = series.length;
      const name = seriesName(line);
      series.push({
        label: line.label,
        stroke: colour(name),
        width: 2,
        dash: line.dashed ? [6, 4] : undefined,
        spanGaps: true,
        points: { show: Math.min(xs.length, 2 * line.x.length) <= FEW, size: 6, fill: colour(name) },
        value: (_, _value, index, at) => (at === null ? "" : shown(raw[index - 1][at], 3)),
      });
      if (line.low.length) {
        const bound = { class: "bound", stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        series.push({ ...bound, label: `${line.label}, lower` }, { ...bound, label: `${line.label}, upper` });
        bands.push({ series: [place + 2, place + 1], fill: faint(name, 16) });
        bounds.set(place, [place + 1, place + 2]);
      }
      if (drawing.stacked) {
        if (place > 1) bands.push({ series: [place, place - 1], fill: faint(name, 45) });
        else series[place].fill = faint(name, 45);
      }
    }
    const horizontal = drawing.logX
      ? axis(drawing.xTitle, { size: 32, splits: () => xs, filter: (_, splits) => splits })
      : iterationAxis(drawing.xTitle);
    const options = {
      series,
      bands,
      scales: { x: xScale(drawing, xs), y: yScale(drawing) },
      axes: [horizontal, drawing.logY ? logAxis(drawing.yTitle) : yAxis(drawing.yTitle)],
      legend: { markers: { width: 2, fill: (_, place) => (series[place].dash ? "transparent" : series[place].stroke) } },
      cursor: { sync: drawing.logX ? undefined : { key: drawing.xTitle, scales: ["x", null] }, dataIdx: nearest },
      hooks: {
        setLegend: [(plot) => plot.legend.idx === null && plot.setLegend({ idxs: plot.data.map(lastIndex) }, false)],
        setSeries: [
          (plot, place, change) => bounds.get(place)?.forEach((n) => plot.setSeries(n, { show: change.show }, false)),
        ],
      },
    };
    const read = (at) => `${drawing.xTitle} ${xs[at]}: ${drawing.series.map((l, i) => said_of(l, raw, columnOf(drawing, i), at)).join(", ")}`;
    return { options, data: [xs, ...columns], read };
  }

  const columnOf = (drawing, line) => drawing.series.slice(0, line).reduce((n, l) => n + (l.low.length ? 3 : 1), 0);
  const said_of = (line, raw, column, at) => `${line.label} ${shown(raw[column][at]) || "none"}`;
  const lastIndex = (column) => column.findLastIndex((value) => value !== null && value !== undefined);

  // The nearest place at which this line has a point: evaluations are further apart than iterations.
  function nearest(plot, place, at) {
    const column = plot.data[place];
    for (let away = 0; away < column.length; away++)
      for (const candidate of [at - away, at + away]) if (column[candidate] !== null && column[candidate] !== undefined) return candidate;
    return at;
  }

  function cells(drawing) {
    const { columns, rows } = drawing;
    const told = (column, row) =>
      `${rows[row].label}, ${drawing.xTitle} ${columns[column]}: ${rows[row].values[column] === undefined ? "not met" : `${Math.round(100 * rows[row].values[column])} %`}`;
    function fill(plot) {
      const { left, top, width, height } = plot.bbox;
      const { ctx } = plot;
      ctx.save();
      for (let row = 0; row < rows.length; row++)
        rows[row].values.forEach((value, column) => {
          const x = Math.round(left + (column * width) / columns.length);
          const y = Math.round(top + (row * height) / rows.length);
          const right = Math.round(left + ((column + 1) * width) / columns.length);
          const bottom = Math.round(top + ((row + 1) * height) / rows.length);
          ctx.fillStyle = colours[Math.round(value * (colours.length - 1))];
          ctx.fillRect(x, y, right - x, bottom - y);
        });
      ctx.restore();
    }
    const colours = Array.from({ length: 21 }, (_, n) => `color-mix(in srgb, ${colour("--series-1")} ${5 * n}%, ${colour("--empty")})`);
    const middle = columns.map((_, n) => n + 0.5);
    const every = Math.ceil(columns.length / 12);
    const options = {
      series: [{ label: "" }, { paths: () => null, points: { show: false } }],
      scales: { x: { time: false, range: [0, columns.length] }, y: { range: [rows.length, 0] } },
      axes: [
        axis(drawing.xTitle, {
          size: 32,
          grid: { show: false },
          splits: () => middle.filter((_, n) => n % every === 0),
          values: (_, splits) => splits.map((at) => columns[Math.floor(at)]),
        }),
        yAxis(drawing.yTitle, { size: 10, grid: { show: false }, ticks: { show: false }, values: () => [] }),
      ],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      hooks: {
        draw: [fill],
        setCursor: [
          (plot) => {
            const { left, top, idx } = plot.cursor;
            const row = Math.floor(plot.posToVal(top, "y"));
            const readout = plot.root.parentElement.querySelector(".readout");
            if (readout) readout.textContent = left < 0 || !rows[row] ? "" : told(idx, row);
          },
        ],
      },
    };
    const read = (at) => `${drawing.xTitle} ${columns[at]}: ${drawing.yTitle}, mean ${meanOf(rows, at)} %`;
    return { options, data: [middle, middle.map(() => 0)], read };
  }

  function meanOf(rows, at) {
    const known = rows.map((row) => row.values[at]).filter((value) => value !== undefined);
    return Math.round((100 * known.reduce((sum, value) => sum + value, 0)) / known.length);
  }

  const MAKERS = { lines, cells };

  function make(host, drawing, width) {
    const { options, data, read } = MAKERS[drawing.kind](drawing);
    if (drawing.kind === "cells") host.append(scale(drawing));
    const plot = new uPlot({ ...options, width: width ?? host.clientWidth, height: heightOf(drawing) }, data, host);
    if (options.legend?.show !== false) {
      plot.setLegend({ idxs: plot.data.map(lastIndex) }, false);
      host.querySelectorAll(".u-series th").forEach((name, place) => place > 0 && drawing.series.length > 1 && toggling(name));
    }
    drawn.push({ plot, host, drawing, read });
  }

  const heightOf = (drawing) => (drawing.kind === "cells" ? 300 : 240);

  // What the tints of a grid mean, and where the value under the pointer is told.
  function scale() {
    const line = Object.assign(document.createElement("p"), { className: "cells-scale" });
    const tints = Object.assign(document.createElement("span"), { className: "scale-of-cells" });
    tints.setAttribute("aria-hidden", "true");
    const readout = Object.assign(document.createElement("span"), { className: "readout" });
    line.append("solved 0 % ", tints, " 100 % ", readout);
    return line;
  }

  function toggling(name) {
    name.tabIndex = 0;
    name.setAttribute("role", "button");
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      name.click();
    });
  }

  function draw(width) {
    for (const { plot, host } of drawn.splice(0)) {
      plot.destroy();
      host.replaceChildren();
    }
    for (const [name, drawing] of Object.entries(drawings)) make(document.getElementById(name), drawing, width?.(name));
  }

  function move(event) {
    const found = drawn.find(({ host }) => host === event.currentTarget);
    if (!found || event.target !== found.host || event.ctrlKey || event.metaKey || event.altKey) return;
    const { plot, read } = found;
    const last = plot.data[0].length - 1;
    const here = plot.cursor.idx;
    const target = {
      ArrowRight: here === null || here === undefined ? 0 : Math.min(here + 1, last),
      ArrowLeft: here === null || here === undefined ? last : Math.max(here - 1, 0),
      Home: 0,
      End: last,
    }[event.key];
    if (target === undefined && event.key !== "Escape") return;
    event.preventDefault();
    if (target === undefined) return plot.setCursor({ left: -10, top: -10 });
    plot.setCursor({ left: plot.valToPos(plot.data[0][target], "x"), top: plot.over.clientHeight / 2 });
    said.textContent = read(target);
  }

  for (const name of Object.keys(drawings)) document.getElementById(name).addEventListener("keydown", move);
  draw();
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const found = drawn.find(({ host }) => host === target);
      if (found && target.clientWidth && target.clientWidth !== found.plot.width)
        found.plot.setSize({ width: target.clientWidth, height: heightOf(found.drawing) });
    }
  });
  for (const { host } of drawn) resized.observe(host);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  window.addEventListener("beforeprint", () => {
    document.documentElement.classList.add("on-paper");
    draw();
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.remove("on-paper");
    draw();
  });
})();
