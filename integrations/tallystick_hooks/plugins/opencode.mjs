
const spoken = (parts) =>
  parts
    .filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
    .map((part) => part.text)
    .join("\n")

export const Tallystick = async ({ client, directory }) => {
  const state = { started: new Set(), compacted: new Set() }
  const project = basename(directory ?? "")
  const said = (session, more) => ({ session, project, agent: SETTINGS.agent, ...more })
  const turns = async (session) => {
    const found = await client.session.messages({ path: { id: session } }).catch(() => ({}))
    return (found.data ?? [])
      .filter(({ info }) => info.role === "user" || info.summary !== true)
      .map(({ info, parts }) => ({
        key: info.id,
        speaker: info.role === "user" ? "user" : "agent",
        text: spoken(parts),
      }))
      .filter((turn) => turn.text.trim())
  }
  return {
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const found = await contexts(state, sessionID, project, spoken(parts), message.id)
      for (const [place, text] of found.entries()) {
        const id = `prt_${message.id.replace(/^msg_/, "")}tally${place}`
        const part = { id, sessionID, messageID: message.id, type: "text", text, synthetic: true }
        parts.push(part)
      }
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const call = said(sessionID, { tool, arguments: args, call_id: callID })
      const answer = await tell("before-tool", call)
      if (answer.decision === "deny") throw new Error(answer.reason)
      if (answer.arguments) overwrite(args, answer.arguments)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, { output }) => {
      const call = { tool, arguments: args, call_id: callID, result: output }
      await tell("after-tool", said(sessionID, call))
    },
    "experimental.session.compacting": async ({ sessionID }) => {
      await tell("before-compact", said(sessionID, { turns: await turns(sessionID) }))
    },
    event: async ({ event: { type, properties } }) => {
      if (type === "session.compacted") state.compacted.add(properties.sessionID)
      if (type === "session.idle") {
        const told = (await turns(properties.sessionID)).slice(-20)
        await tell("turn-end", said(properties.sessionID, { turns: told }))
      }
      if (type === "session.deleted" && state.started.delete(properties.info.id)) {
        await tell("session-end", said(properties.info.id))
      }
      const part = type === "message.part.updated" ? properties.part : {}
      if (part.type === "tool" && part.state.status === "error") {
        const { tool, callID, state: failed } = part
        const call = { tool, arguments: failed.input, call_id: callID, error: String(failed.error) }
        await tell("after-tool", said(part.sessionID, call))
      }
    },
    dispose: async () => {
      await Promise.all([...state.started].map((session) => tell("session-end", said(session))))
    },
  }
}
