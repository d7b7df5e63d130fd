"""The decoding rule's version: raised with every change after which equal logits may give another token."""

RULE_VERSION = 2
