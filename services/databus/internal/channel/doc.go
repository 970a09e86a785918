// Package channel keeps the channels that this agent runs: their config compiled into plans, watched at the control plane,
// cached on disk, and reported back. It owns defaults and what a config change means; it knows nothing of how messages are
// published under a plan.
package channel
