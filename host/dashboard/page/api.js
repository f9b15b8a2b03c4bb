// Asks the server of the page.

// An error with a message for the user: the server has refused a request, or does not answer.
export class UserError extends Error {}

export async function text(path, signal) {
  let response;
  let body;
  try {
    response = await fetch(path, { signal, cache: 'no-store' });
    body = await response.text();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new UserError('The dashboard does not answer. Start kubectl ipu dashboard again, and open the URL that it prints.');
  }
  if (response.ok) return body;
  let words = `the dashboard answered with status ${response.status}`;
  try {
    words = JSON.parse(body).message ?? words;
  } catch {
    // Not of the API: the status says enough.
  }
  throw new UserError(words);
}
