"""The example of the flows' design: every field and nearly every kind of step."""

from __future__ import annotations

from typing import Final

LEAD: Final = """\
kind: Workflow
metadata: {name: lead_processing, version: "2", description: "Save, score and route a lead"}
spec:
  trigger:
    path: /api/leads
    method: POST
    input: {email: {type: string, required: true}, name: string, company: string}
  context: {models: [{name: Lead, version: v2}], defaults: {priority: normal}}
  limits: {max_steps: 200, timeout: 1h}
  steps:
    - {id: save, runner: save_lead}
    - id: classify
      kind: agent
      agent:
        prompt: |
          Customer: {{ name }}
          Classify this lead's potential.
        output: {map: {potential: lead_potential, score: lead_score}}
      timeout: 60s
      retry: {attempts: 3, on: [timeout, parse_error], backoff: 2}
      routes: {error: manual}
    - id: route
      kind: router
      router:
        conditions:
          - {if: "priority == 'urgent'", signal: escalate}
          - {if: "lead_score > 80", signal: high_value}
          - {else: true, signal: normal}
      routes: {escalate: approve, high_value: respond, normal: respond}
    - id: approve
      kind: human
      human: {title: "Escalate {{ name }}?", show: [name, lead_score], form: {approved: boolean}, expires: 2d}
    - {id: respond, kind: response, response: {mapping: {id: id, score: lead_score}}}
    - {id: manual, runner: flag_for_review}
"""
