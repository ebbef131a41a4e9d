// What the extension's bundle needs of rspack beyond JupyterLab's own configuration.
// Modules are numbered in their order: by default their ids are hashes of paths on this machine,
// and a wheel built elsewhere would differ.
module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };
