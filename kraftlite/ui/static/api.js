// What the page asks its server. The token of the link goes into a cookie, and out of the address.

async function call(path, options) {
  const response = await fetch(path, { credentials: "same-origin", ...options });
  const value = await response.json().catch(() => ({ error: `HTTP ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(value.error || `HTTP ${response.status}`), { status: response.status });
  return value;
}

export const get = (path) => call(path, {});
export const post = (path, value) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Kraftlite": "1" }, body: JSON.stringify(value) });

/** Exchange the token behind # for a session, if there is one, and take it out of the address. */
export async function open() {
  const token = location.hash.slice(1);
  if (!/^[\w-]{20,}$/.test(token)) return;
  history.replaceState(null, "", location.pathname);
  await post("/api/v1/session", { token });
}

/** Watch: `on.state`, `on.partitions` get what comes, and its text; `on.lost` hears that the stream has ended for good. */
export function watch(filter, on) {
  const source = new EventSource(`/api/v1/stream?q=${encodeURIComponent(filter)}`);
  source.addEventListener("state", (event) => on.state(JSON.parse(event.data), event.data));
  source.addEventListener("partitions", (event) => on.partitions(JSON.parse(event.data), event.data));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) on.lost();
  };
  return source;
}
