// Search in a site that is opened from disk: browsers start no Worker from a file, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.scope.document.createElement("script");
      script.src = url;
      this.started = new Promise((done) => script.addEventListener("load", done));
      this.scope.document.body.append(script);
    }
    async postMessage(data) {
      await this.started;
      this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
