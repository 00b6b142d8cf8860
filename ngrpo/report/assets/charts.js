"use strict";
// Draws the figures in the colours of the theme, and again when the theme changes.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function themed(figure) {
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), zeroline: false, automargin: true };
    const layout = {
      ...figure.layout,
      paper_bgcolor: colour("--card"),
      plot_bgcolor: colour("--card"),
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      colorway: [1, 2, 3, 4].map((number) => colour(`--series-${number}`)),
      margin: { l: 8, r: 8, t: 8, b: 8 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    };
    layout.xaxis = { ...axis, ...figure.layout.xaxis };
    layout.yaxis = { ...axis, ...figure.layout.yaxis };
    const data = figure.data.map((trace) =>
      trace.type === "heatmap"
        ? { ...trace, colorscale: [[0, colour("--empty")], [1, colour("--series-1")]] }
        : { ...trace, line: { width: 2, ...trace.line } },
    );
    return [data, layout];
  }

  function draw() {
    for (const [name, figure] of Object.entries(figures)) {
      const [data, layout] = themed(figure);
      Plotly.react(name, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
    }
  }

  dark.addEventListener("change", draw);
  draw();
})();
