// The block map: a cell for each block of the KV cache, or for several where there are too many.

import { CACHED, FREE, USED } from "./history.js";
import { prepare } from "./timeline.js";

const MAX_HEIGHT = 168;
const SIZES = [22, 18, 14, 12, 10, 8, 7, 6, 5, 4];

export class BlockMap {
  constructor(canvas, colours) {
    this.canvas = canvas;
    this.colours = colours;
  }

  // highlighted: the sequence whose blocks are marked, or null.
  draw(history, highlighted) {
    const { blocks } = history;
    const width = this.canvas.parentElement.clientWidth;
    const { size, perRow, group } = layout(blocks.length, width);
    const numCells = Math.ceil(blocks.length / group);
    const pen = prepare(this.canvas, width, Math.max(size, Math.ceil(numCells / perRow) * size));
    const own = new Set(highlighted ? highlighted.blocks : []);
    const counts = [0, 0, 0];
    for (const state of blocks) counts[state] += 1;
    for (let cell = 0; cell < numCells; cell += 1) {
      const left = (cell % perRow) * size;
      const top = Math.floor(cell / perRow) * size;
      this.drawCell(pen, blocks.subarray(cell * group, (cell + 1) * group), left, top, size - 1);
      if (own.size && hasOwn(own, cell * group, group)) {
        pen.fillStyle = this.colours.mark;
        pen.fillRect(left + size / 4, top + size / 4, (size - 1) / 2, (size - 1) / 2);
      }
    }
    this.describe(counts, group);
  }

  drawCell(pen, states, left, top, size) {
    pen.fillStyle = this.colours.free;
    pen.fillRect(left, top, size, size);
    for (const [state, name] of [[CACHED, "cached"], [USED, "used"]]) {
      const count = states.reduce((total, each) => total + (each === state), 0);
      if (count === 0) continue;
      pen.globalAlpha = 0.35 + 0.65 * (count / states.length);
      pen.fillStyle = this.colours[name];
      pen.fillRect(left, top, size, size);
    }
    pen.globalAlpha = 1;
  }

  describe(counts, group) {
    this.canvas.dataset.used = counts[USED];
    this.canvas.dataset.cached = counts[CACHED];
    this.canvas.dataset.free = counts[FREE];
    this.canvas.dataset.group = group;
    this.canvas.setAttribute(
      "aria-label", `${counts[USED]} blocks used, ${counts[CACHED]} cached, ${counts[FREE]} free`,
    );
  }
}

function hasOwn(own, first, count) {
  for (let block = first; block < first + count; block += 1) if (own.has(block)) return true;
  return false;
}

// The largest cells that fit; where even the smallest do not, several blocks share one.
function layout(numBlocks, width) {
  for (const size of SIZES) {
    const perRow = Math.max(1, Math.floor(width / size));
    if (Math.ceil(numBlocks / perRow) * size <= MAX_HEIGHT) return { size, perRow, group: 1 };
  }
  const size = SIZES[SIZES.length - 1];
  const perRow = Math.max(1, Math.floor(width / size));
  return { size, perRow, group: Math.ceil(numBlocks / (perRow * Math.floor(MAX_HEIGHT / size))) };
}
