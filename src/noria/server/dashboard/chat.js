// The chat box: the server's own API, streamed, with what a user would measure.

// Three requests of several texts each, since a browser opens six connections to a server and the events have one.
const MANY = [
  ["A river rises in the mountains and", "The wheel turned slowly because", "Once upon a time a fox", "The tides are made by"],
  ["Bread rises when", "Copper is used for"],
  ["Rain falls when warm air", "A good question is one that"],
];
const MANY_APART_MS = 500;

export class Chat {
  // headers: makes the request headers; onKeyWanted: called when the server wants another key.
  constructor(headers, onKeyWanted) {
    this.headers = headers;
    this.onKeyWanted = onKeyWanted;
    this.messages = [];
    this.running = new Set(); // abort controllers of the answers under way
    this.log = document.getElementById("chat-log");
    this.text = document.getElementById("chat-text");
    document.getElementById("chat-form").addEventListener("submit", (event) => { event.preventDefault(); this.say(); });
    document.getElementById("chat-stop").addEventListener("click", () => this.stop());
    document.getElementById("chat-clear").addEventListener("click", () => this.clear());
    document.getElementById("chat-many").addEventListener("click", () => this.sayMany());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.say(); }
    });
    this.showButtons();
  }

  async say() {
    const text = this.text.value.trim();
    if (!text || this.running.size) return;
    this.text.value = "";
    this.messages.push({ role: "user", content: text });
    this.show("user", text);
    const [answer] = await this.answer("v1/chat/completions", { messages: this.messages }, 1);
    if (answer) this.messages.push({ role: "assistant", content: answer });
    else this.messages.pop();
  }

  async sayMany() {
    if (this.running.size) return;
    this.show("user", "Continue eight texts.");
    await Promise.all(MANY.map(async (prompt, i) => {
      await new Promise((resolve) => { setTimeout(resolve, i * MANY_APART_MS); });
      await this.answer("v1/completions", { prompt, max_tokens: Math.ceil(this.maxTokens() / (i + 1)) }, prompt.length);
    }));
  }

  maxTokens() {
    return Math.max(1, Math.floor(Number(document.getElementById("chat-max").value)) || 128);
  }

  stop() {
    for (const controller of this.running) controller.abort();
  }

  clear() {
    this.stop();
    this.messages = [];
    this.log.replaceChildren();
  }

  // Show the choices of one request as they come; their texts.
  async answer(path, fields, numChoices) {
    const controller = new AbortController();
    this.running.add(controller);
    this.showButtons();
    const answers = Array.from({ length: numChoices }, () => new Answer(this.show("assistant", ""), this.log));
    try {
      await this.stream(path, fields, controller.signal, answers);
      for (const answer of answers) answer.end(answer.finish === "length" ? "cut at max tokens" : "");
    } catch (error) {
      const isStopped = controller.signal.aborted;
      for (const answer of answers) answer.end(isStopped ? "stopped" : "", isStopped ? "" : String(error.message || error));
    } finally {
      this.running.delete(controller);
      this.showButtons();
    }
    return answers.map((answer) => answer.text);
  }

  async stream(path, fields, signal, answers) {
    const response = await fetch(path, {
      method: "POST",
      headers: { ...this.headers(), "Content-Type": "application/json" },
      body: JSON.stringify({
        max_tokens: this.maxTokens(),
        temperature: Number(document.getElementById("chat-temperature").value) || 0,
        stream: true,
        return_token_ids: true, // to count them
        ...fields,
      }),
      signal,
    });
    if (response.status === 401) this.onKeyWanted();
    if (!response.ok) throw new Error(await reason(response));
    for await (const data of events(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      for (const choice of chunk.choices) answers[choice.index].take(choice);
    }
  }

  show(role, text) {
    const turn = document.createElement("div");
    turn.className = `turn ${role}`;
    turn.append(text);
    this.log.append(turn);
    this.log.scrollTop = this.log.scrollHeight;
    return turn;
  }

  showButtons() {
    const isBusy = this.running.size > 0;
    document.getElementById("chat-stop").hidden = !isBusy;
    document.getElementById("chat-send").hidden = isBusy;
    document.getElementById("chat-many").disabled = isBusy;
  }
}

class Answer {
  constructor(turn, log) {
    this.turn = turn;
    this.log = log;
    this.text = "";
    this.finish = null;
    this.numTokens = 0;
    this.beganMs = performance.now();
    this.firstMs = null;
    this.lastMs = null;
    this.figures = document.createElement("small");
    this.figures.textContent = "waiting for the first token";
    turn.append(this.figures);
  }

  take(choice) {
    this.finish = choice.finish_reason || this.finish;
    const text = choice.delta ? choice.delta.content : choice.text;
    if (!text) return;
    this.lastMs = performance.now();
    this.firstMs = this.firstMs ?? this.lastMs;
    this.numTokens += (choice.token_ids || [null]).length;
    this.text += text;
    this.turn.insertBefore(document.createTextNode(text), this.figures);
    this.tell("");
  }

  tell(note) {
    const parts = [];
    if (this.firstMs !== null) parts.push(`first token ${Math.round(this.firstMs - this.beganMs)} ms`);
    const seconds = (this.lastMs - this.firstMs) / 1000;
    if (this.numTokens > 1 && seconds > 0) parts.push(`${((this.numTokens - 1) / seconds).toFixed(1)} tok/s`);
    if (this.numTokens) parts.push(`${this.numTokens} tokens`);
    if (note) parts.push(note);
    this.figures.textContent = parts.join(" · ");
    this.log.scrollTop = this.log.scrollHeight;
  }

  end(note, error) {
    if (error) {
      this.turn.classList.add("failed");
      this.turn.insertBefore(document.createTextNode(this.text ? `\n${error}` : error), this.figures);
    }
    this.tell(note);
    if (!this.text && !error && !note) this.figures.textContent = "an empty answer";
  }
}

async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// The data of each server-sent event of a response.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) if (frame.startsWith("data: ")) yield frame.slice(6);
  }
}
