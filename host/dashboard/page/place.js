// The place of the page: the view, its parameters and the namespace are in the URL, so that they can be shared.

// The views, in the order of the navigation.
export const NAMES = ['controllers', 'queue', 'partitions', 'goodput', 'policies'];

export function place() {
  const [path, query] = location.hash.replace(/^#/, '').split('?');
  const [name, ...rest] = path.split('/');
  const parameters = new URLSearchParams(query ?? '');
  if (name === 'partition' && rest.length > 0) {
    return { view: name, item: decode(rest.join('/')), parameters };
  }
  return { view: NAMES.includes(name) ? name : NAMES[0], parameters };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function namespace() {
  return new URLSearchParams(location.search).get('namespace') ?? '';
}

export function link(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#${view}${query ? `?${query}` : ''}`;
}

// The path of what a place shows.
export function source({ view, item, parameters }) {
  if (view === 'partition') return `api/partition/${encodeURIComponent(item)}`;
  const asked = new URLSearchParams();
  if (namespace() && view !== 'policies') asked.set('namespace', namespace());
  for (const name of ['controller', 'offset']) {
    const isKnown = name === 'offset' || view === 'partitions';
    if (isKnown && parameters.get(name)) asked.set(name, parameters.get(name));
  }
  const query = asked.toString();
  return `api/${view}${query ? `?${query}` : ''}`;
}
