// What the server has told, as the page draws it: a column for each step, a lane for each sequence.

const MAX_COLUMNS = 600;
const MAX_TTFTS = 500;
const MAX_GAPS = 5000;
const MAX_POINTS = 4096;
export const KEPT_MS = 120000;

export const FREE = 0;
export const CACHED = 1;
export const USED = 2;

export class History {
  constructor() {
    this.forget({}, []);
  }

  // Start anew: what the page showed was another engine's, or too much was missed in between.
  forget(about, runs) {
    this.about = about;
    this.stats = { running: 0, waiting: 0, blocks: 0, used: 0, cached: 0, alive: true };
    this.columns = [];
    this.live = new Map(); // request id -> sequence that waits or runs
    this.lanes = []; // lane -> the live sequence that has it, or null
    this.ttfts = [];
    this.gaps = [];
    this.points = []; // a few numbers of each step, for rates and plots
    this.numSequences = 0;
    this.blocks = new Uint8Array(runs.reduce((sum, [, count]) => sum + count, 0));
    let at = 0;
    for (const [state, count] of runs) {
      this.blocks.fill(state, at, at + count);
      at += count;
    }
  }

  take(message) {
    if (message.kind === "snapshot") this.forget(message.about, message.blocks);
    this.stats = message.stats;
    const records = [...message.steps, ...message.ends].sort((a, b) => a.n - b.n);
    for (const record of records) {
      if (record.step === undefined) this.end(record, message.ids);
      else this.step(record, message.ids);
    }
    if (message.stats.running + message.stats.waiting === 0) {
      for (const sequence of [...this.live.values()]) this.leave(sequence); // those a dying engine did not mention
    }
  }

  step(record, ids) {
    const column = { step: record.step, at: record.at, ms: sum(record.ms), parts: record.ms, cells: [] };
    for (const i of record.arrived) this.sequence(ids[i]).expected = 0;
    for (const i of record.preempted) this.preempt(this.sequence(ids[i]), column);
    for (const [i, computed, count, samples, blocks] of record.work) {
      this.work(this.sequence(ids[i]), column, computed, count, samples, blocks);
    }
    const busy = new Set(column.cells.map((cell) => cell.lane));
    for (const sequence of this.live.values()) {
      if (busy.has(sequence.lane)) continue;
      column.cells.push({ lane: sequence.lane, sequence, kind: sequence.expected === null ? "held" : "waiting" });
    }
    this.columns.push(column);
    if (this.columns.length > MAX_COLUMNS) this.columns.shift();
    this.change(record.blocks);
    this.measure(record, column);
  }

  // expected: how far a sequence that waits was computed when it is taken up again, so 0; null while it runs.
  work(sequence, column, computed, count, samples, blocks) {
    const cached = sequence.expected === null ? 0 : computed - sequence.expected;
    sequence.expected = null;
    sequence.blocks.push(...blocks);
    const kind = count === 1 && samples ? "decode" : "prefill";
    column.cells.push({ lane: sequence.lane, sequence, kind, count, context: computed, cached });
  }

  preempt(sequence, column) {
    sequence.expected = 0;
    sequence.blocks = [];
    column.cells.push({ lane: sequence.lane, sequence, kind: "preempted" });
  }

  end(record, ids) {
    const sequence = this.live.get(ids[record.id]);
    if (sequence) {
      sequence.finish = record.finish;
      this.leave(sequence);
    }
    this.change(record.blocks);
  }

  leave(sequence) {
    const last = this.columns[this.columns.length - 1];
    const cell = last && last.cells.find((each) => each.sequence === sequence);
    if (cell) cell.ends = true;
    this.live.delete(sequence.id);
    this.lanes[sequence.lane] = null;
    sequence.blocks = [];
  }

  // The live sequence with this id; a new one takes the lowest free lane.
  sequence(id) {
    const known = this.live.get(id);
    if (known) return known;
    let lane = this.lanes.indexOf(null);
    if (lane < 0) lane = this.lanes.length;
    this.numSequences += 1;
    const made = { id, number: this.numSequences, lane, expected: null, blocks: [], finish: null };
    this.lanes[lane] = made;
    this.live.set(id, made);
    return made;
  }

  change(changes) {
    for (const [block, state] of changes) this.blocks[block] = state;
  }

  measure(record, column) {
    keep(this.ttfts, record.ttfts, MAX_TTFTS);
    keep(this.gaps, record.gaps, MAX_GAPS);
    const { at, prefill, sampled, running, waiting, used, cached } = record;
    this.points.push({ at, ms: column.ms, prefill, sampled, running, waiting, used, cached });
    const oldest = at - KEPT_MS;
    let stale = Math.max(0, this.points.length - MAX_POINTS);
    while (stale < this.points.length && this.points[stale].at < oldest) stale += 1;
    this.points.splice(0, stale);
  }
}

export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

// The value below which `share` of the values lie; null where there are none.
export function quantile(values, share) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

function keep(values, more, limit) {
  values.push(...more);
  if (values.length > limit) values.splice(0, values.length - limit);
}
