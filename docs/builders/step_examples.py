"""One example a kind of step, for the reference. The test of the pages' blocks reads every one."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, str]] = {
    "functional": """
- {id: save, runner: save_lead, timeout: 10s, retry: {attempts: 3, on: [error], backoff: 2s}}
""",
    "agent": """
- id: classify
  agent:
    model: openai:gpt-5-mini
    system: You judge how likely a lead becomes a customer.
    prompt: "Company: {{ company }}"
    output:
      schema: {potential: {type: string, enum: [low, high], required: true}, score: {type: integer, min: 0, max: 100}}
      map: {potential: lead_potential, score: lead_score}
  routes: {error: manual, parse_error: manual}
- {id: manual, runner: flag_for_review}
""",
    "router": """
- id: route
  router:
    conditions:
      - {if: "priority == 'urgent'", signal: urgent}
      - {if: "lead_score > 80 and contains(tags, 'partner')", signal: high}
      - {else: true, signal: normal}
  routes: {urgent: call, high: call, normal: END}
- {id: call, runner: call_them}
""",
    "api_call": """
- id: rate
  api_call:
    url: "https://rates.example.com/{{ currency }}"
    method: GET
    headers: {Authorization: "Bearer {{ secret.RATES_TOKEN }}"}
    output: {map: {data.rate: rate}}
  timeout: 10s
  retry: {attempts: 3, on: [error, timeout]}
""",
    "model_op": """
kind: Workflow
metadata: {name: newest_leads}
spec:
  context: {models: [{name: Lead, version: v2}]}
  steps:
    - id: find
      model_op: {model: Lead, op: list, where: {status: new, score: {gte: 50}}, order_by: -created_at, limit: 20, into: leads}
---
kind: ModelDefinition
metadata: {name: Lead, version: v2}
spec:
  fields: {email: {type: string, required: true, unique: true}, status: {type: string, default: new}, score: integer}
""",
    "response": """
- {id: look, runner: look_up}
- {id: respond, response: {status: 201, mapping: {id: id, worth: "lead_score > 80", name: "upper(name)"}}}
""",
    "human": """
- id: approve
  human:
    title: "Pay back {{ amount }}?"
    show: [order, amount]
    form: {approved: {type: boolean, required: true}, note: string}
    group: finance
    signal_from: approved
    expires: 2d
  routes: {"true": pay, "false": END, expired: END}
- {id: pay, runner: pay_back}
""",
    "mcp": """
- id: search
  mcp: {server: "https://mcp.example.com/mcp", tool: search, arguments: {query: "{{ question }}", limit: 5}, output: {key: found}}
  timeout: 30s
""",
    "for_each": """
- id: contacts
  for_each:
    items: contacts
    as: contact
    index: place
    concurrency: 4
    on_error: collect
    into: imported
    steps:
      - {id: look, runner: look_up}
      - {id: keep, response: {mapping: {email: contact.email, domain: domain}}}
""",
    "parallel": """
- id: both
  parallel:
    into: found
    branches:
      rate: [{id: ask_rate, runner: ask_rate}]
      stock: [{id: ask_stock, runner: ask_stock}]
""",
    "workflow": """
kind: Workflow
metadata: {name: orders}
spec:
  steps:
    - {id: refund, workflow: {name: refund, input: {order: "{{ order }}", amount: 19.9}, into: refunded}}
---
kind: Workflow
metadata: {name: refund}
spec:
  trigger: {path: /refunds, input: {order: {type: integer, required: true}, amount: number}}
  steps: [{id: done, response: {mapping: {paid: amount}}}]
""",
    "wait": """
- {id: an_hour, wait: {for: 1h}}
- {id: the_day, wait: {until: "{{ delivery_date }}T08:00:00Z"}}
- {id: paid, wait: {event: payment, expires: 3d, into: payment}, routes: {timeout: END}}
""",
    "channel": """
- id: panel
  channel:
    agents: [writer, editor]
    pattern: round_robin
    message: "Write a slogan for {{ product }}."
    context: {tone: plain}
    max_turns: 4
    into: slogan
""",
}
