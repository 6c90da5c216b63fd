// Follows a job to its end: functions/job-events/README.md. EventSource hides the status that closes it.
// A fetch then asks: 204 is the end, else it tries again.
/**
 * @param {string} url resumes after its `lastEventId`
 * @param {{
 *   token: () => string | Promise<string>,
 *   onEvent: (event: any, id: string) => void,
 *   onGap?: () => void, // events were lost
 *   onEnd?: () => void,
 *   onError?: (error: any) => void, // tries again
 *   EventSource?: any, // in Node npm's eventsource
 * }} options
 */
export function followJob(url, { token, onEvent, onGap, onEnd, onError, EventSource = globalThis.EventSource }) {
  const { CLOSED } = EventSource;
  const link = new URL(url, globalThis.location);
  const query = link.searchParams;
  let source, timer, closed, failures = 0;

  async function open() {
    source?.close();
    query.set("token", await token());
    if (closed) return;
    source = new EventSource(link);
    source.onopen = () => (failures = 0);
    source.onmessage = ({ data, lastEventId: id }) => {
      if (closed) return; // in Node
      query.set("lastEventId", id);
      onEvent(JSON.parse(data), id);
    };
    source.addEventListener("gap", () => {
      if (query.has("lastEventId")) onGap?.(); // once
      query.delete("lastEventId");
    });
    source.addEventListener("expired", () => run(open));
    source.onerror = () => source.readyState === CLOSED && run(ask);
  }

  async function ask() {
    const { status, body } = await fetch(link);
    body?.cancel();
    if (status !== 204) throw Error("refused, then HTTP " + status, { cause: status });
    if (!closed && onEnd) queueMicrotask(onEnd);
    close();
  }

  const run = (step) =>
    closed || step().catch((error) => {
      if (closed) return;
      timer = setTimeout(run, 2 ** Math.min(failures++, 5) * (1 + Math.random()) * 500, open);
      onError?.(error);
    });

  function close() {
    closed = true;
    clearTimeout(timer);
    source?.close();
  }

  run(open);
  return { close };
}
