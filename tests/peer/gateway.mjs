// Prints the peer's generated gateway program. argv: directory of the package.
const { getSandboxCallbackBridgeServerSource } = await import(`${process.argv[2]}/dist/sandbox-callback-bridge.js`);
process.stdout.write(getSandboxCallbackBridgeServerSource());
