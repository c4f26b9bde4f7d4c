// Written by `tally hook install`, which writes it anew. Each event of a session is told to the
// command `tally hook`, as hooks do that are commands; what it answers is handed on.
import { spawn } from "node:child_process"
import { basename } from "node:path"
import { fileURLToPath } from "node:url"

const SETTINGS = {}
const ROOT = SETTINGS.up ? fileURLToPath(new URL(SETTINGS.up, import.meta.url)) : undefined
const MILLISECONDS = 30_000

// Tells of one event, in the neutral format; answers {} where the command failed. Before a tool,
// where rules were given, a failure refuses the tool.
function tell(event, payload) {
  const [program, ...words] = SETTINGS.command
  return new Promise((resolve) => {
    let text = ""
    const end = (code) => {
      clearTimeout(limit)
      try {
        const answer = text ? JSON.parse(text) : {}
        if (code === 0 || answer.decision === "deny") return resolve(answer)
      } catch {}
      const refused = event === "before-tool" && (code === 2 || SETTINGS.closed)
      resolve(refused ? { decision: "deny", reason: "The rules could not be checked." } : {})
    }
    const child = spawn(program, [...words, event, ...SETTINGS.options], {
      cwd: ROOT,
      stdio: ["pipe", "pipe", "ignore"],
    })
    const limit = setTimeout(() => child.kill("SIGKILL"), MILLISECONDS)
    child.on("error", () => end(1))
    child.on("close", (code) => end(code ?? 1))
    child.stdout.setEncoding("utf8").on("data", (piece) => (text += piece))
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(payload))
  })
}

// What a prompt brings: at the beginning of a session, after a compaction, and by itself.
async function contexts(state, session, project, prompt, eventId) {
  const first = state.compacted.delete(session)
    ? "after-compact"
    : state.started.has(session)
      ? undefined
      : "session-start"
  state.started.add(session)
  const said = { session, project, agent: SETTINGS.agent }
  const answers = []
  if (first) answers.push(await tell(first, said))
  answers.push(await tell("prompt", { ...said, prompt, event_id: eventId }))
  return answers.map((answer) => answer.context).filter(Boolean)
}

// Puts cleaned arguments in the place of those that a program holds already.
function overwrite(held, cleaned) {
  for (const name of Object.keys(held)) delete held[name]
  Object.assign(held, cleaned)
}
