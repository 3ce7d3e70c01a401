// Starts the language server, `fulgurite lsp`, for traces and snapshots.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;
// One start at a time: each waits for the one before.
let started = Promise.resolve();

async function activate(context) {
  const start = async () => {
    await stop();
    const setting = vscode.workspace.getConfiguration("fulgurite").get("command");
    try {
      const [command, ...args] = setting;
      const cwd = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
      const next = new LanguageClient(
        "fulgurite",
        "Fulgurite",
        { command, args, options: { cwd } },
        { documentSelector: [{ language: "fulgurite-trace" }, { language: "fulgurite-snapshot" }] },
      );
      await next.start();
      client = next;
    } catch (error) {
      // Colours and folding work without it.
      const command = JSON.stringify(setting);
      vscode.window.showWarningMessage(`${command} cannot be started (setting fulgurite.command): ${error.message}`);
    }
  };
  const restart = () => (started = started.then(start));
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("fulgurite.command")) restart();
    }),
  );
  await restart();
}

// A client that did not start, or whose server ended, has nothing to stop and says so by throwing.
async function stop() {
  const last = client;
  client = undefined;
  if (last?.isRunning()) await last.stop().catch(() => {});
}

exports.activate = activate;
exports.deactivate = () => started.then(stop);
