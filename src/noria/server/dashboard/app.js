// Ties the page together: reads the events, keeps the history, draws.

import { BlockMap } from "./blocks.js";
import { Chat, events } from "./chat.js";
import { History, quantile, sum } from "./history.js";
import { Plots } from "./plots.js";
import { Timeline } from "./timeline.js";

const RATE_MS = 5000;
const PLOT_EVERY_MS = 2000;
const RETRY_MS = [500, 1000, 2000, 4000];
const element = (id) => document.getElementById(id);
const colours = {};
const history = new History();
const timeline = new Timeline(element("timeline"), element("tip"), colours);
const blockMap = new BlockMap(element("blocks"), colours);
const plots = new Plots(colours);
const state = { key: "", frozen: false, heardMs: 0, clockMs: 0, plottedMs: 0, reading: null, isDrawing: false };

const headers = () => (state.key ? { Authorization: `Bearer ${state.key}` } : {});
new Chat(headers, () => askForKey());

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["prefill", "decode", "cached", "preempted", "waiting", "used", "free", "mark", "card", "ink", "soft", "line"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function say(name, text) {
  element("status").dataset.state = name;
  element("status").textContent = text;
}

// Read events until the page is hidden; begin again when the server was away.
async function follow() {
  const reading = new AbortController();
  state.reading = reading;
  for (let tries = 0; !reading.signal.aborted; tries += 1) {
    try {
      const response = await fetch("dashboard/events", { headers: headers(), signal: reading.signal, cache: "no-store" });
      if (response.status === 401) return askForKey();
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      element("key-form").hidden = true;
      for await (const data of events(response)) {
        tries = 0;
        say("live", "live");
        take(JSON.parse(data));
      }
    } catch (error) {
      if (reading.signal.aborted) return undefined; // else the server is away, however the browser puts it
    }
    say("lost", "the server is away; trying again");
    await new Promise((resolve) => { setTimeout(resolve, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]); });
  }
  return undefined;
}

function askForKey() {
  say("key", "API key wanted");
  element("key-error").textContent = state.key ? "That key is not one of the server's." : "";
  element("key-form").hidden = false;
}

function take(message) {
  history.take(message);
  const latest = message.steps[message.steps.length - 1];
  if (latest) {
    state.clockMs = latest.at;
    state.heardMs = performance.now();
  }
  if (message.kind === "snapshot") {
    if (!latest) state.heardMs = 0;
    element("model").textContent = history.about.model;
    document.title = `${history.about.model} · Noria`;
    plots.prepare(history.about);
  }
  if (!history.stats.alive) say("lost", "the engine is down");
  draw();
}

// The engine's clock now, in ms, as far as this page can tell.
function engineNow() {
  return state.heardMs ? state.clockMs + performance.now() - state.heardMs : 0;
}

function draw() {
  if (state.isDrawing || document.hidden) return;
  state.isDrawing = true;
  requestAnimationFrame(() => {
    state.isDrawing = false;
    drawNumbers();
    if (!state.frozen) {
      element("empty").hidden = history.columns.length > 0;
      timeline.draw(history);
      const { hidden } = timeline.layout;
      element("batch-more").textContent = hidden ? `${hidden} more rows are not shown` : "";
    }
    blockMap.draw(history, timeline.hovered);
    if (performance.now() - state.plottedMs > PLOT_EVERY_MS) {
      state.plottedMs = performance.now();
      plots.draw(history, engineNow());
    }
  });
}

function drawNumbers() {
  const { stats, points, ttfts, gaps, about } = history;
  const recent = points.filter((point) => point.at > engineNow() - RATE_MS);
  const rate = (key) => whole((1000 * sum(recent.map((point) => point[key]))) / RATE_MS);
  element("running").textContent = whole(stats.running);
  element("waiting").textContent = whole(stats.waiting);
  element("decode-rate").textContent = rate("sampled");
  element("prefill-rate").textContent = rate("prefill");
  duration("ttft", quantile(ttfts, 0.5));
  duration("itl", quantile(gaps, 0.5));
  duration("step-time", quantile(points.slice(-100).map((point) => point.ms), 0.5));
  tail("ttft-more", ttfts, "median, p95");
  tail("itl-more", gaps, "median, p95");
  element("kv").textContent = stats.blocks ? ((100 * stats.used) / stats.blocks).toFixed(stats.used ? 1 : 0) : "–";
  element("kv-more").textContent = `${whole(stats.used)} of ${whole(stats.blocks)} blocks`;
  element("num-used").textContent = whole(stats.used);
  element("num-cached").textContent = whole(stats.cached);
  element("num-free").textContent = whole(stats.blocks - stats.used - stats.cached);
  const each = Number(element("blocks").dataset.group) || 1;
  const cells = each > 1 ? `${each} blocks a cell` : "a cell is a block";
  element("blocks-more").textContent = about.block_size ? `${cells} of ${about.block_size} tokens` : cells;
}

function tail(id, values, otherwise) {
  const high = quantile(values, 0.95);
  element(id).textContent = high === null ? otherwise : `median · p95 ${inUnit(high).join(" ")}`;
}

function duration(id, ms) {
  const [value, unit] = ms === null ? ["–", "ms"] : inUnit(ms);
  element(id).textContent = value;
  element(`${id}-unit`).textContent = unit;
}

function inUnit(ms) {
  const [value, unit] = ms < 1000 ? [ms, "ms"] : [ms / 1000, "s"];
  return [value < 10 ? value.toFixed(1) : value.toFixed(0), unit];
}

function whole(value) {
  return Math.round(value).toLocaleString("en");
}

element("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = element("key").value.trim();
  element("key").value = "";
  say("connecting", "connecting");
  if (state.reading) state.reading.abort();
  follow();
});
element("freeze").addEventListener("click", () => {
  state.frozen = !state.frozen;
  element("freeze").setAttribute("aria-pressed", String(state.frozen));
  draw();
});
element("timeline").addEventListener("pointermove", draw);
element("timeline").addEventListener("pointerleave", draw);
document.addEventListener("visibilitychange", () => {
  // A page that nobody sees reads nothing.
  if (state.reading) state.reading.abort();
  if (!document.hidden) follow();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
new ResizeObserver(draw).observe(document.querySelector("main"));
setInterval(draw, 1000); // rates fall and plots move on while nothing happens

readColours();
draw();
if (!document.hidden) follow();
