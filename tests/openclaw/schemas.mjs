// OpenClaw's own JSON Schemas of its protocol, as one object of JSON.
import { pathToFileURL } from "node:url";

const protocol = await import(pathToFileURL(process.argv[2]).href);
const schemas = Object.entries(protocol).filter(([name]) => name.endsWith("Schema"));
process.stdout.write(JSON.stringify(Object.fromEntries(schemas)));
