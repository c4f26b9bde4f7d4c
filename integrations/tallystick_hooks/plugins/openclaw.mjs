
const spoken = (content) =>
  typeof content === "string"
    ? content
    : (Array.isArray(content) ? content : [])
        .filter((part) => part.type === "text")
        .map((part) => part.text)
        .join("\n")

export default {
  id: "tallystick",
  name: "Tallystick",
  description: "Memory, rules and records of sessions. Written by `tally hook install`.",
  register(api) {
    const state = { started: new Set(), compacted: new Set() }
    const earlier = new Map()
    const begun = Date.now()
    // A compaction may give a session another id; what was told before was told of it.
    const named = (event, ctx) => {
      const id = ctx.sessionId ?? event.sessionId ?? ctx.sessionKey ?? event.sessionKey
      return id === undefined ? undefined : (earlier.get(id) ?? id)
    }
    const on = (name, answer) =>
      api.on(name, async (event, ctx = {}) => {
        const session = named(event, ctx)
        if (session === undefined) return undefined
        const project = basename(ctx.workspaceDir ?? "")
        return answer(event, { session, project, agent: SETTINGS.agent }, ctx)
      })
    const turns = (messages) =>
      (messages ?? [])
        .filter(({ role, timestamp }) => ["user", "assistant"].includes(role) && timestamp >= begun)
        .map(({ role, timestamp, content }) => ({
          key: `${timestamp} ${role}`,
          speaker: role === "user" ? "user" : "agent",
          text: spoken(content),
        }))
        .filter((turn) => turn.text.trim())
    on("before_prompt_build", async (event, { session, project }) => {
      const prompt = event.currentUserMessage ?? event.prompt
      const found = await contexts(state, session, project, prompt, event.currentUserMessageId)
      return found.length ? { prependContext: found.join("\n\n") } : undefined
    })
    on("before_tool_call", async (event, said) => {
      const { toolName: tool, params, toolCallId: call_id } = event
      const answer = await tell("before-tool", { ...said, tool, arguments: params, call_id })
      if (answer.decision === "deny") return { block: true, blockReason: answer.reason }
      return answer.arguments ? { params: answer.arguments } : undefined
    })
    on("after_tool_call", async (event, said) => {
      const { toolName: tool, params, toolCallId: call_id, result, error } = event
      await tell("after-tool", { ...said, tool, arguments: params, call_id, result, error })
    })
    on("agent_end", async (event, said) => {
      await tell("turn-end", { ...said, turns: turns(event.messages).slice(-20) })
    })
    on("before_compaction", async (event, said) => {
      await tell("before-compact", { ...said, turns: turns(event.messages) })
    })
    on("after_compaction", async (event, { session }, ctx) => {
      const before = event.previousSessionId
      const first = before === undefined ? session : (earlier.get(before) ?? before)
      if (before !== undefined) earlier.set(ctx.sessionId, first)
      state.compacted.add(first)
    })
    on("session_end", async (event, said) => {
      if (event.reason === "compaction") return
      state.started.delete(said.session)
      await tell("session-end", said)
    })
  },
}
