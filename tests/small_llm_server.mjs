// A real small language model behind the chat-completions protocol, for one opt-in test.
//
//     npm install node-llama-cpp                 (prebuilt binaries, no compiler)
//     node small_llm_server.mjs NODE_MODULES MODEL.gguf
//
// Prints its port. The JSON schema of the request becomes a grammar, so that answers have the
// agreed form; the context is that of a model of this size.

import http from "node:http";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, modelPath] = process.argv.slice(2);
const entry = path.join(path.resolve(modules), "node-llama-cpp", "dist", "index.js");
const { getLlama, LlamaChatSession } = await import(pathToFileURL(entry).href);

const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: 8192, threads: 2 });

// A model of this size writes lists without end: the grammar ends them.
function bounded(schema) {
    if (schema.type === "object") {
        const entries = Object.entries(schema.properties).map(([k, v]) => [k, bounded(v)]);
        return { ...schema, properties: Object.fromEntries(entries) };
    }
    if (schema.type === "array") return { ...schema, items: bounded(schema.items), maxItems: 2 };
    if (schema.type === "string" && !schema.enum) return { ...schema, maxLength: 60 };
    return schema;
}

async function complete(body) {
    const sequence = context.getSequence();
    try {
        const [system, user] = body.messages;
        const session = new LlamaChatSession({
            contextSequence: sequence,
            systemPrompt: system.content,
        });
        const schema = body.response_format?.json_schema?.schema;
        const grammar = schema ? await llama.createGrammarForJsonSchema(bounded(schema)) : undefined;
        const { responseText, stopReason } = await session.promptWithMeta(user.content, {
            grammar,
            temperature: body.temperature,
            topP: body.top_p,
            seed: body.seed,
            maxTokens: body.max_tokens,
        });
        return {
            choices: [
                {
                    index: 0,
                    finish_reason: stopReason === "maxTokens" ? "length" : "stop",
                    message: { role: "assistant", content: responseText },
                },
            ],
        };
    } finally {
        sequence.dispose();
    }
}

const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.setHeader("content-type", "application/json");
    try {
        const answer = await complete(JSON.parse(Buffer.concat(chunks).toString()));
        response.end(JSON.stringify(answer));
    } catch (error) {
        response.statusCode = 500;
        response.end(JSON.stringify({ error: { message: String(error) } }));
    }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
