// Starts the language server, `fulgurite lsp`, for traces and snapshots.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const start = async () => {
    await client?.stop();
    const [command, ...args] = vscode.workspace.getConfiguration("fulgurite").get("command");
    const cwd = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
    client = new LanguageClient(
      "fulgurite",
      "Fulgurite",
      { command, args, options: { cwd } },
      { documentSelector: [{ language: "fulgurite-trace" }, { language: "fulgurite-snapshot" }] },
    );
    try {
      await client.start();
    } catch (error) {
      // Colours and folding work without it.
      vscode.window.showWarningMessage(`${command} cannot be started (setting fulgurite.command): ${error.message}`);
    }
  };
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((change) => change.affectsConfiguration("fulgurite.command") && start()),
  );
  await start();
}

exports.activate = activate;
exports.deactivate = () => client?.stop();
