// Pages that are opened from a folder may not start workers, which the search needs. There an invisible frame stands in:
// it runs the worker's script, and what would be posted to and fro is handed over.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(script) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const runs = this.inside.document.createElement("script");
      runs.src = script;
      runs.onload = () => {
        this.waiting.forEach((data) => this.hand(data));
        this.waiting = null;
      };
      runs.onerror = () => this.dispatchEvent(new Event("error"));
      this.inside.document.body.append(runs);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.hand(data);
    }

    hand(data) {
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}
