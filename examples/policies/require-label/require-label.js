// Require label: an IPUJob has the labels that the admin requires.

/** Keys of the labels, from the settings: {"requireLabels": ["team"]}. */
function required(settings) {
  const { requireLabels = ["team"] } = JSON.parse(settings);
  return requireLabels;
}

export const validator = {
  validateSettings(settings) {
    const keys = required(settings);
    if (!Array.isArray(keys) || keys.some((key) => typeof key !== "string")) {
      throw `requireLabels is ${JSON.stringify(keys)}; write a list of keys such as ["team"]`;
    }
  },

  validate(request) {
    const labels = JSON.parse(request.object).metadata?.labels ?? {};
    const missing = required(request.settings).filter((key) => !labels[key]);
    return {
      violations: missing.map((key) => ({
        field: `metadata.labels[${key}]`,
        message: `missing; every IPUJob says by this label whose it is, so add \`${key}: …\``,
      })),
      warnings: [],
    };
  },
};
