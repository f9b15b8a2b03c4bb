// The place of the page: the view, its parameters and the namespace are in the URL, so that they can be shared.

// The views, in the order of the navigation.
export const NAMES = ['overview', 'controllers', 'queue', 'partitions', 'goodput', 'policies'];

// Most V-IPU controllers on a page, and on the overview.
const CONTROLLERS = 256;
const FIRST_CONTROLLERS = 12;

export function place() {
  const [path, query] = location.hash.replace(/^#/, '').split('?');
  const [name, ...rest] = path.split('/');
  const parameters = new URLSearchParams(query ?? '');
  if (name === 'partition' && rest.length > 0) {
    return { view: name, item: decode(rest.join('/')), parameters };
  }
  if (name === 'job' && rest.length === 2) {
    return { view: name, item: rest.map(decode).join('/'), parameters };
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

export function inNamespace() {
  return namespace() ? ` in namespace ${namespace()}` : '';
}

export function link(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#${view}${query ? `?${query}` : ''}`;
}

export function toPartition(name) {
  return `#partition/${encodeURIComponent(name)}`;
}

// The page of an owner: only IPUJobs have one.
export function toOwner({ kind, namespace: of, name }) {
  return kind === 'IPUJob' ? `#job/${encodeURIComponent(of)}/${encodeURIComponent(name)}` : null;
}

function path(name, parameters) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `api/${name}${query ? `?${query}` : ''}`;
}

// The paths of what a place shows. A change of the text of one of them is drawn.
export function sources({ view, item, parameters }) {
  const own = { namespace: namespace() };
  const asked = (name) => parameters.get(name) ?? '';
  switch (view) {
    case 'partition': return [`api/partition/${encodeURIComponent(item)}`];
    case 'job': return [`api/job/${item.split('/').map(encodeURIComponent).join('/')}`];
    case 'overview': return [path(view, own), path('controllers', { ...own, sort: 'problems', limit: FIRST_CONTROLLERS })];
    case 'controllers': return [path(view, { ...own, sort: asked('sort'), limit: CONTROLLERS, offset: asked('offset') })];
    case 'partitions': return [path(view, { ...own, controller: asked('controller'), offset: asked('offset') })];
    case 'goodput': return [path(view, { ...own, offset: asked('offset') }), path('history', own)];
    case 'policies': return [path(view, { offset: asked('offset') })];
    default: return [path(view, { ...own, offset: asked('offset') })];
  }
}
