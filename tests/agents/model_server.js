'use strict';
/*
 * model_server.js: a stand-in for the model behind an agent CLI.
 *
 * Serves, on loopback, as much of three public interfaces as the CLIs need to do one editing task: Anthropic
 * Messages (claude), OpenAI Responses (codex), Gemini generateContent (gemini). It does not think: it walks a
 * fixed list of tool calls, one a turn, and moves on when the CLI has sent back a result for the last
 * one. So whatever changes in the workspace was changed by the CLI's own tools.
 *
 * usage: node model_server.js LOG WORKSPACE
 * The port is the one line on stdout, written once the server listens. LOG gets one JSON line a request.
 * With STANDIN_FAIL=1 each request is answered as a real service answers a bad key.
 */
const fs = require('fs');
const http = require('http');
const path = require('path');

const [logFile, workspace] = process.argv.slice(2);
const inside = (name) => path.join(workspace, name);
const BODY_MAX = 32 << 20;
const DONE = 'The greeting is changed and a note is written.';

function log(entry) {
  fs.appendFileSync(logFile, JSON.stringify(entry) + '\n');
}

/* With STANDIN_KEY set: is that what was shown? */
const isReal = (shown) => !!process.env.STANDIN_KEY && (shown || '').replace(/^Bearer /, '') === process.env.STANDIN_KEY;

/* ---- Anthropic Messages ---- */

const claudeSteps = [
  ['Read', {file_path: inside('greeting.txt')}],
  ['Edit', {file_path: inside('greeting.txt'), old_string: 'Hello, world', new_string: 'Hello, airlock'}],
  ['Write', {file_path: inside('notes/made-by-agent.md'), content: '# Written by the agent\n'}],
  ['Bash', {command: 'sh ./check.sh', description: 'Run the check'}],
];

/* opencode speaks the same protocol to this model, with tools of its own. */
const opencodeSteps = [
  ['read', {filePath: inside('greeting.txt')}],
  ['edit', {filePath: inside('greeting.txt'), oldString: 'Hello, world', newString: 'Hello, airlock'}],
  ['write', {filePath: inside('notes/made-by-agent.md'), content: '# Written by the agent\n'}],
  ['bash', {command: 'sh ./check.sh', description: 'Run the check'}],
];

function countResults(messages) {
  let n = 0;
  for (const m of messages)
    if (m.role === 'user' && Array.isArray(m.content))
      n += m.content.filter((c) => c.type === 'tool_result').length;
  return n;
}

function lastResult(messages) {
  const last = messages[messages.length - 1];
  const part = Array.isArray(last?.content) && last.content.find((c) => c.type === 'tool_result');
  return part ? {error: !!part.is_error, text: JSON.stringify(part.content).slice(0, 300)} : null;
}

function sse(res, events) {
  res.writeHead(200, {'content-type': 'text/event-stream', 'cache-control': 'no-cache'});
  for (const [name, data] of events)
    res.write((name ? `event: ${name}\n` : '') + `data: ${JSON.stringify(data)}\n\n`);
  res.end();
}

function claude(req, res, body) {
  const tools = new Set((body.tools || []).map((t) => t.name));
  const steps = tools.has('Edit') ? claudeSteps : tools.has('edit') ? opencodeSteps : [];
  const step = steps[countResults(body.messages)];
  const id = 'msg_' + Date.now();
  const usage = {input_tokens: 10, output_tokens: 10};
  const block = step ? {type: 'tool_use', id: 'toolu_' + countResults(body.messages), name: step[0], input: step[1]}
                     : {type: 'text', text: DONE};
  const stop = step ? 'tool_use' : 'end_turn';

  log({api: 'anthropic', step: step ? step[0] : 'text', result: lastResult(body.messages), key: !!req.headers['x-api-key'], real: isReal(req.headers['x-api-key'])});
  if (!body.stream) {
    res.writeHead(200, {'content-type': 'application/json'});
    res.end(JSON.stringify({id, type: 'message', role: 'assistant', model: body.model, content: [block], stop_reason: stop, stop_sequence: null, usage}));
    return;
  }
  const start = step ? {...block, input: {}} : {type: 'text', text: ''};
  const delta = step ? {type: 'input_json_delta', partial_json: JSON.stringify(step[1])} : {type: 'text_delta', text: DONE};
  sse(res, [
    ['message_start', {type: 'message_start', message: {id, type: 'message', role: 'assistant', model: body.model, content: [], stop_reason: null, stop_sequence: null, usage}}],
    ['content_block_start', {type: 'content_block_start', index: 0, content_block: start}],
    ['content_block_delta', {type: 'content_block_delta', index: 0, delta}],
    ['content_block_stop', {type: 'content_block_stop', index: 0}],
    ['message_delta', {type: 'message_delta', delta: {stop_reason: stop, stop_sequence: null}, usage}],
    ['message_stop', {type: 'message_stop'}],
  ]);
}

/* ---- OpenAI Responses ---- */

const codexScript = [
  "sed -i 's/Hello, world/Hello, airlock/' greeting.txt",
  "mkdir -p notes && printf '# Written by the agent\\n' > notes/made-by-agent.md",
  'sh ./check.sh',
];

/* The shell tool has had several names and shapes; take the one that this request offers. */
function codexCall(tools, script) {
  const names = tools.map((t) => t.name || t.type);
  if (names.includes('exec_command'))
    return ['exec_command', {cmd: script, workdir: workspace}];
  if (names.includes('shell_command'))
    return ['shell_command', {command: script, workdir: workspace}];
  return ['shell', {command: ['sh', '-c', script], workdir: workspace}];
}

function codex(req, res, body) {
  const results = (body.input || []).filter((i) => i.type === 'function_call_output');
  const script = codexScript[results.length];
  const id = 'resp_' + Date.now();
  const usage = {input_tokens: 10, output_tokens: 10, total_tokens: 20, input_tokens_details: {cached_tokens: 0}, output_tokens_details: {reasoning_tokens: 0}};
  let item;

  if (script) {
    const [name, args] = codexCall(body.tools || [], script);
    item = {type: 'function_call', id: 'fc_' + results.length, call_id: 'call_' + results.length, name, arguments: JSON.stringify(args), status: 'completed'};
  } else {
    item = {type: 'message', id: 'item_done', role: 'assistant', status: 'completed', content: [{type: 'output_text', text: DONE, annotations: []}]};
  }
  log({api: 'openai', step: item.name || 'text', tools: (body.tools || []).map((t) => t.name || t.type),
       result: results.length ? JSON.stringify(results[results.length - 1].output).slice(0, 300) : null, key: !!req.headers.authorization, real: isReal(req.headers.authorization)});
  sse(res, [
    ['response.created', {type: 'response.created', response: {id, object: 'response', status: 'in_progress', model: body.model, output: []}}],
    ['response.output_item.added', {type: 'response.output_item.added', output_index: 0, item}],
    ['response.output_item.done', {type: 'response.output_item.done', output_index: 0, item}],
    ['response.completed', {type: 'response.completed', response: {id, object: 'response', status: 'completed', model: body.model, output: [item], usage}}],
  ]);
}

/* ---- Gemini generateContent ---- */

const geminiSteps = [
  ['replace', {file_path: inside('greeting.txt'), instruction: 'Greet airlock instead of the world.', old_string: 'Hello, world', new_string: 'Hello, airlock'}],
  ['write_file', {file_path: inside('notes/made-by-agent.md'), content: '# Written by the agent\n'}],
  ['run_shell_command', {command: 'sh ./check.sh', description: 'Run the check'}],
];

function gemini(req, res, body, streaming) {
  const declared = (body.tools || []).flatMap((t) => t.functionDeclarations || []).map((d) => d.name);
  const results = (body.contents || []).flatMap((c) => c.parts || []).filter((p) => p.functionResponse);
  const step = declared.includes('replace') ? geminiSteps[results.length] : null;
  /* Side questions (routing, next speaker) ask for JSON of a given schema. */
  const wantsJson = body.generationConfig?.responseMimeType === 'application/json';
  const text = wantsJson ? JSON.stringify({reasoning: 'done', next_speaker: 'user', model_choice: 'flash', complexity_reasoning: 'x', complexity_score: 1}) : DONE;
  const part = step ? {functionCall: {name: step[0], args: step[1]}} : {text};
  const answer = {
    candidates: [{content: {role: 'model', parts: [part]}, finishReason: 'STOP', index: 0}],
    usageMetadata: {promptTokenCount: 10, candidatesTokenCount: 10, totalTokenCount: 20},
    modelVersion: 'stand-in',
  };

  log({api: 'gemini', step: step ? step[0] : 'text', tools: declared, result: results.length ? JSON.stringify(results[results.length - 1]).slice(0, 300) : null,
       key: !!(req.headers['x-goog-api-key'] || req.url.includes('key=')), real: isReal(req.headers['x-goog-api-key'])});
  if (streaming)
    return sse(res, [[null, answer]]);
  res.writeHead(200, {'content-type': 'application/json'});
  res.end(JSON.stringify(answer));
}

/* ---- one server for all ---- */

function route(req, res, body) {
  const url = req.url.split('?')[0];
  if (process.env.STANDIN_FAIL)
    return res.writeHead(401, {'content-type': 'application/json'})
        .end('{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}');
  if (req.method === 'POST' && url.endsWith('/v1/messages'))
    return claude(req, res, body);
  if (req.method === 'POST' && url.endsWith('/count_tokens'))
    return res.writeHead(200, {'content-type': 'application/json'}).end('{"input_tokens":10}');
  if (req.method === 'POST' && url.endsWith('/responses'))
    return codex(req, res, body);
  if (req.method === 'POST' && url.includes(':streamGenerateContent'))
    return gemini(req, res, body, true);
  if (req.method === 'POST' && url.includes(':generateContent'))
    return gemini(req, res, body, false);
  if (req.method === 'POST' && url.includes(':countTokens'))
    return res.writeHead(200, {'content-type': 'application/json'}).end('{"totalTokens":10}');
  log({refused: `${req.method} ${url}`});
  res.writeHead(404, {'content-type': 'application/json'}).end('{"error":{"message":"no such call"}}');
}

const server = http.createServer((req, res) => {
  const chunks = [];
  let size = 0;
  req.on('data', (c) => {
    size += c.length;
    if (size > BODY_MAX)
      req.destroy();
    else
      chunks.push(c);
  });
  req.on('end', () => {
    let body = {};
    try {
      body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString('utf8')) : {};
      route(req, res, body);
    } catch (e) {
      log({failed: String(e), url: req.url});
      if (!res.headersSent)
        res.writeHead(500);
      res.end();
    }
  });
});

server.listen(0, '127.0.0.1', () => process.stdout.write(server.address().port + '\n'));
