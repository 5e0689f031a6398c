// Search in pages that are opened from a disk. A browser makes no Worker from a file: address, so the search runs in a
// hidden frame with the same messages. The theme looks for this name.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<body></body>"
      this.ready = new Promise(resolve => {
        frame.onload = () => {
          const inner = frame.contentWindow
          const load = address =>
            new Promise((done, failed) => {
              const script = inner.document.createElement("script")
              script.src = address
              script.onload = done
              script.onerror = failed
              inner.document.body.appendChild(script)
            })
          inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          inner.importScripts = async (...addresses) => {
            for (const address of addresses) await load(address)
          }
          inner.parent.IFrameWorker = window.IFrameWorker
          load(url).then(() => resolve(inner))
        }
      })
      document.body.appendChild(frame)
    }

    postMessage(data) {
      this.ready.then(inner => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
    }

    terminate() {}
  }
}
