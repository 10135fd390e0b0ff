// Lines and distributions, by plotly's own script where the server has it.

import { KEPT_MS, quantile } from "./history.js";

const BIN_MS = 1000;
const MAX_DOTS = 200; // of a line
const MIN_SPAN_MS = 20000;
const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
const CONFIG = { displayModeBar: false, responsive: true };

export class Plots {
  constructor(colours) {
    this.colours = colours;
    this.isAsked = false;
    this.range = [0, 0]; // of the time axes, in seconds before now
  }

  // about: what the server says of itself. Loads the script the first time.
  prepare(about) {
    const isThere = Boolean(about.plotly);
    document.getElementById("plots-missing").hidden = isThere;
    document.getElementById("plots").hidden = !isThere;
    document.getElementById("plots-more").hidden = !isThere;
    document.getElementById("plots-install").textContent = about.install;
    if (!isThere || this.isAsked) return;
    this.isAsked = true;
    const script = document.createElement("script");
    script.src = `dashboard/plotly.js?v=${encodeURIComponent(about.plotly)}`;
    script.addEventListener("error", () => { this.isAsked = false; });
    document.head.append(script);
  }

  // now: the engine's clock, in ms.
  draw(history, now) {
    if (!window.Plotly) return;
    const { prefill, decode, cached, used, waiting, soft } = this.colours;
    const points = history.points.filter((point) => point.at > now - KEPT_MS);
    const span = Math.min(KEPT_MS, Math.max(MIN_SPAN_MS, points.length ? now - points[0].at : 0));
    this.range = [-span / 1000, 0];
    const bins = inBins(points, span / MAX_DOTS);
    const x = bins.map((bin) => (bin[0].at - now) / 1000);
    const line = (name, key, colour) => lineOf(name, x, bins.map((bin) => bin[bin.length - 1][key]), colour);
    const times = (name, share, colour) => (
      lineOf(name, x, bins.map((bin) => quantile(bin.map((point) => point.ms), share)), colour)
    );
    this.show("plot-requests", "Requests", "", [line("running", "running", decode), line("waiting", "waiting", soft)]);
    this.show("plot-tokens", "Tokens per second", "", rates(points, now, prefill, decode));
    this.show("plot-steps", "Step time", "ms", [times("longest", 1, soft), times("median", 0.5, prefill)]);
    this.show("plot-blocks", "KV blocks", "", [line("used", "used", used), line("cached", "cached", cached)]);
    this.show("plot-ttft", "Time to first token", "ms", [distribution(history.ttfts, decode)], true);
    this.show("plot-itl", "Time between tokens", "ms", [distribution(history.gaps, prefill)], true);
  }

  show(id, title, unit, traces, isDistribution = false) {
    const { ink, soft, line } = this.colours;
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickfont: { color: soft, size: 10 }, fixedrange: true };
    const name = unit ? `${title} (${unit})` : title;
    const layout = {
      title: { text: name, font: { size: 13, color: ink }, x: 0.02, xanchor: "left", y: 0.97 },
      margin: { l: 38, r: 8, t: 30, b: 30 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: soft, family: "system-ui, sans-serif" },
      showlegend: traces.length > 1,
      legend: { orientation: "h", x: 1, xanchor: "right", y: 1.17, font: { size: 11 } },
      hovermode: "x",
      xaxis: isDistribution
        ? { ...axis, type: "log", tickvals: TICKS, ticktext: TICKS.map(String) }
        : { ...axis, range: this.range, ticksuffix: " s", nticks: 5 },
      yaxis: { ...axis, rangemode: "tozero", nticks: 5 },
    };
    window.Plotly.react(id, traces, layout, CONFIG);
  }
}

function lineOf(name, x, y, colour) {
  return { name, x, y, type: "scatter", mode: "lines", line: { color: colour, width: 1.8, shape: "hv" } };
}

// Points that follow each other within some time, together.
function inBins(points, width) {
  const bins = [];
  let number = null;
  for (const point of points) {
    const own = Math.floor(point.at / width);
    if (own !== number) bins.push([]);
    bins[bins.length - 1].push(point);
    number = own;
  }
  return bins;
}

// Tokens of each second before now; those of the second under way are not counted yet.
function rates(points, now, prefill, decode) {
  const numBins = KEPT_MS / BIN_MS;
  const read = new Array(numBins).fill(0);
  const made = new Array(numBins).fill(0);
  for (const point of points) {
    const bin = numBins - 1 - Math.floor((now - point.at) / BIN_MS);
    if (bin < 0 || bin >= numBins) continue;
    read[bin] += point.prefill;
    made[bin] += point.sampled;
  }
  const x = read.map((_, bin) => ((bin + 1 - numBins) * BIN_MS) / 1000);
  return [lineOf("prefill", x, read, prefill), lineOf("generated", x, made, decode)];
}

// Counts in bins that grow by a tenth of a decade.
function distribution(values, colour) {
  const bins = new Map();
  for (const value of values) {
    const bin = Math.floor(10 * Math.log10(Math.max(value, 0.001)));
    bins.set(bin, (bins.get(bin) || 0) + 1);
  }
  const x = [];
  const y = [];
  if (bins.size) {
    const [low, high] = [Math.min(...bins.keys()) - 1, Math.max(...bins.keys()) + 1];
    for (let bin = low; bin <= high; bin += 1) {
      x.push(10 ** (bin / 10));
      y.push(bins.get(bin) || 0);
    }
  }
  const shape = { ...lineOf("count", x, y, colour), fill: "tozeroy" };
  return { ...shape, hovertemplate: "from %{x:.3g} ms: %{y}<extra></extra>" };
}
