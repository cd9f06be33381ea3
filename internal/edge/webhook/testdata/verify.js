// Verifies one delivery as a receiver in JavaScript does: node verify.js FOLDER < {"secret","headers","body"}.
// It prints what the library returns, or ends with 1 and the library's reason.
const path = require("path");
const { Webhook } = require(path.join(process.argv[2], "node_modules", "standardwebhooks"));

const { secret, headers, body } = JSON.parse(require("fs").readFileSync(0, "utf8"));
try {
  process.stdout.write(JSON.stringify(new Webhook(secret).verify(body, headers)));
} catch (e) {
  process.stderr.write(String(e));
  process.exit(1);
}
