// The picture of continuous batching: rows are sequences, columns are steps.

const GUTTER = 38;
const STRIP = 52; // of step times, below the rows
const MIN_ROWS = 8;
const MAX_ROWS = 88;
const MIN_ROW = 4; // pixels
const MAX_ROW = 16;
const HEIGHT_SHARE = 0.45; // of the window; the style sheet lets what is higher scroll

export class Timeline {
  constructor(canvas, tip, colours) {
    this.canvas = canvas;
    this.tip = tip;
    this.colours = colours;
    this.hovered = null; // the sequence pointed at
    this.pointer = null;
    this.layout = null;
    canvas.addEventListener("pointermove", (event) => { this.pointer = event; this.point(); });
    canvas.addEventListener("pointerleave", () => { this.pointer = null; this.point(); });
  }

  draw(history) {
    const { canvas } = this;
    const width = canvas.parentElement.clientWidth;
    const small = width < 520;
    const step = small ? 7 : 8;
    const numColumns = Math.max(1, Math.floor((width - GUTTER) / step));
    const columns = history.columns.slice(-numColumns);
    const numLanes = 1 + Math.max(-1, ...columns.flatMap((column) => column.cells.map((cell) => cell.lane)));
    const rows = Math.min(MAX_ROWS, Math.max(MIN_ROWS, numLanes));
    // As high as rows can be without hiding the strip below them.
    const row = Math.max(MIN_ROW, Math.min(MAX_ROW, Math.floor((HEIGHT_SHARE * window.innerHeight - STRIP) / rows)));
    const height = rows * row + STRIP;
    const pen = prepare(canvas, width, height);
    this.layout = { columns, step, row, rows, hidden: Math.max(0, numLanes - rows) };
    this.drawRows(pen, width);
    columns.forEach((column, x) => this.drawColumn(pen, column, x));
    this.drawNumbers(pen, history);
    this.drawStrip(pen, width, height);
    this.describe(history, columns);
    this.point();
  }

  drawRows(pen, width) {
    const { row, rows } = this.layout;
    pen.fillStyle = this.colours.free;
    pen.globalAlpha = 0.45;
    for (let y = 0; y < rows; y += 2) pen.fillRect(GUTTER, y * row, width - GUTTER, row);
    pen.globalAlpha = 1;
  }

  drawColumn(pen, column, x) {
    const { step, row, rows } = this.layout;
    for (const cell of column.cells) {
      if (cell.lane >= rows) continue;
      const left = GUTTER + x * step;
      const gap = row > 9 ? 3 : 1;
      const top = cell.lane * row + gap / 2;
      const isDim = this.hovered !== null && this.hovered !== cell.sequence;
      pen.globalAlpha = isDim ? 0.3 : 1;
      this.drawCell(pen, cell, left, top, step - 1, row - gap);
    }
    pen.globalAlpha = 1;
  }

  drawCell(pen, cell, left, top, width, height) {
    const colour = this.colours[cell.kind];
    if (cell.kind === "waiting") {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      const side = Math.min(5, height - 1);
      pen.strokeRect(left + 1, top + (height - side) / 2, width - 2, side);
      return;
    }
    if (cell.kind === "held") {
      pen.fillStyle = this.colours.prefill;
      pen.fillRect(left, top + height / 2 - 1, width, 2);
      return;
    }
    pen.fillStyle = colour;
    pen.fillRect(left, top, width, height);
    if (cell.cached > 0) {
      const share = cell.cached / (cell.cached + cell.count);
      pen.fillStyle = this.colours.cached;
      pen.fillRect(left, top, width, Math.min(0.8 * height, Math.max(0.3 * height, share * height)));
    }
    if (cell.kind === "preempted") drawCross(pen, left, top, width, height, this.colours.card);
    if (cell.ends) {
      pen.fillStyle = this.colours.mark;
      pen.fillRect(left + width - 2, top, 2, height);
    }
  }

  drawNumbers(pen, history) {
    const { row, rows } = this.layout;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = this.colours.soft;
    if (row < 11) return; // no room for letters
    history.lanes.forEach((sequence, lane) => {
      if (sequence && lane < rows) pen.fillText(`#${sequence.number}`, GUTTER - 5, lane * row + row / 2);
    });
  }

  drawStrip(pen, width, height) {
    const { columns, step } = this.layout;
    const bottom = height - 14;
    const tallest = Math.max(1, ...columns.map((column) => column.ms));
    pen.fillStyle = this.colours.soft;
    columns.forEach((column, x) => {
      const bar = Math.max(1, (column.ms / tallest) * (STRIP - 26));
      pen.fillRect(GUTTER + x * step, bottom - bar, step - 1, bar);
    });
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.font = "11px system-ui, sans-serif";
    columns.forEach((column, x) => {
      if (column.step % 20 === 0) pen.fillText(String(column.step), GUTTER + x * step, height - 2);
    });
    pen.textAlign = "right";
    pen.fillText("ms", GUTTER - 5, bottom);
    pen.fillText(tallest < 10 ? tallest.toFixed(1) : tallest.toFixed(0), GUTTER - 5, bottom - STRIP + 34);
  }

  // In words, for who cannot see the canvas.
  describe(history, columns) {
    const { running, waiting } = history.stats;
    const kinds = new Set(columns.flatMap((column) => column.cells.map((cell) => cell.kind)));
    if (columns.some((column) => column.cells.some((cell) => cell.cached > 0))) kinds.add("cached");
    const latest = columns.length ? columns[columns.length - 1].step : 0;
    this.canvas.setAttribute("aria-label", `Step ${latest}: ${running} running, ${waiting} waiting`);
    this.canvas.dataset.columns = columns.length;
    this.canvas.dataset.sequences = history.numSequences;
    this.canvas.dataset.kinds = [...kinds].sort().join(" ");
    this.canvas.dataset.hidden = this.layout.hidden;
  }

  point() {
    const found = this.pointer && this.layout ? this.cellAt(this.pointer) : null;
    this.hovered = found && found.cell ? found.cell.sequence : null;
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = words(found.column, found.cell);
    const right = found.x > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${found.x + 14}px`;
    this.tip.style.right = right ? `${this.canvas.clientWidth - found.x + 14}px` : "auto";
    this.tip.style.top = `${Math.max(0, found.y - 10)}px`;
  }

  cellAt(event) {
    const { columns, step, row } = this.layout;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const column = columns[Math.floor((x - GUTTER) / step)];
    if (!column || x < GUTTER) return null;
    const lane = Math.floor(y / row);
    return { x, y, column, cell: column.cells.find((cell) => cell.lane === lane) || null };
  }
}

function words(column, cell) {
  const head = `step ${column.step} · ${column.ms.toFixed(1)} ms`;
  if (!cell) return head;
  const lines = [head, `sequence #${cell.sequence.number}: ${cell.kind === "held" ? "running, no share of this step" : cell.kind}`];
  if (cell.count) lines.push(`${cell.count} ${cell.count === 1 ? "token" : "tokens"} after ${cell.context}`);
  if (cell.cached) lines.push(`${cell.cached} tokens from the prefix cache`);
  if (cell.ends) lines.push(`ends here: ${cell.sequence.finish || "gone"}`);
  return lines.join("\n");
}

function drawCross(pen, left, top, width, height, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(left + 2, top + 3);
  pen.lineTo(left + width - 2, top + height - 3);
  pen.moveTo(left + width - 2, top + 3);
  pen.lineTo(left + 2, top + height - 3);
  pen.stroke();
}

// The drawing context of a canvas of this size in CSS pixels, cleared.
export function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
