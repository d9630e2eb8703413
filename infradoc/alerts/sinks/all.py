"""The explicit list of sinks."""

from __future__ import annotations

from infradoc.alerts.config import SinkConfig
from infradoc.alerts.sinks.alertmanager import AlertmanagerSink
from infradoc.alerts.sinks.alertmanager_webhook import AlertmanagerWebhookSink
from infradoc.alerts.sinks.apprise import AppriseSink
from infradoc.alerts.sinks.base import Sink
from infradoc.alerts.sinks.cloudevents import CloudEventsSink
from infradoc.alerts.sinks.dingtalk import DingTalkSink
from infradoc.alerts.sinks.feishu import FeishuSink
from infradoc.alerts.sinks.pagerduty import PagerDutySink
from infradoc.alerts.sinks.slack import SlackSink
from infradoc.alerts.sinks.webhook import WebhookSink
from infradoc.alerts.sinks.wecom import WeComSink

SINKS: dict[str, type[Sink]] = {
    sink.kind: sink
    for sink in (
        WebhookSink,
        AlertmanagerWebhookSink,
        AlertmanagerSink,
        PagerDutySink,
        CloudEventsSink,
        SlackSink,
        FeishuSink,
        DingTalkSink,
        WeComSink,
        AppriseSink,
    )
}


def make_sink(config: SinkConfig) -> Sink:
    """The sink of a configuration; its kind has been checked there."""
    return SINKS[config.kind](config)
