// Reads {schema, queries} as JSON from stdin; prints what Neo4j's own parser and semantic checker say of each query,
// as a list of lists of {severity, message}, but that parameters have no values. argv[2] is the folder of the language support.
const { isNotParamError, lintCypherQuery } = require(process.argv[2]);
let text = "";
process.stdin.on("data", (part) => (text += part));
process.stdin.on("end", () => {
  const { schema, queries } = JSON.parse(text);
  const found = queries.map((query) =>
    lintCypherQuery(query, schema).diagnostics.filter(isNotParamError).map(({ severity, message }) => ({ severity, message })),
  );
  process.stdout.write(JSON.stringify(found));
});
