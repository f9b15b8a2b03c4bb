// Asks the server of the page.

// What somebody can read: that the server has refused something, or does not answer.
export class Told extends Error {}

export async function text(path, signal) {
  let response;
  let body;
  try {
    response = await fetch(path, { signal, cache: 'no-store' });
    body = await response.text();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Told('The dashboard does not answer. Start kubectl ipu dashboard again, and open the URL that it prints.');
  }
  if (response.ok) return body;
  let words = `the dashboard answered with status ${response.status}`;
  try {
    words = JSON.parse(body).message ?? words;
  } catch {
    // Not of the API: the status says enough.
  }
  throw new Told(words);
}
