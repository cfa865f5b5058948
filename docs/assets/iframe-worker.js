// A page that was opened from the disk may start no worker, and the search of these pages needs one. Here a hidden frame
// takes its place: same messages, same order. Over HTTP, browsers have their own.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write(
        "<script>" +
          "var postMessage = data => frameElement.worker.tell(data);" +
          // Scripts in the place of importScripts: they run in the order in which they were asked for.
          "var importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
          "const script = document.createElement('script');" +
          "script.src = url; script.onload = done; script.onerror = failed; document.body.append(script);" +
          "})), Promise.resolve());" +
          "<\/script><body><script src='" + new URL(url, document.baseURI) + "'><\/script>",
      );
      this.frame.worker = this;
      inside.document.close();
      this.ready = new Promise((done) => (this.frame.onload = done));
    }
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
