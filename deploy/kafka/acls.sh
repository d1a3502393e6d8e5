#!/bin/sh
# The least rights of the filter's two users on a Kafka with an authorizer: the workers', and the operator's for all other
# commands. Each may do what is named here and nothing else; running it again changes nothing.
#
#   deploy/kafka/acls.sh --bootstrap-server kafka:9093 --command-config admin.properties
#
# The arguments are passed on to Kafka's own kafka-acls.sh. Names that differ from the defaults of the settings are given
# in the environment: INPUT_TOPIC, VERDICT_TOPIC, DEAD_LETTER_TOPIC, UNIQUE_TOPIC, TAKEDOWN_TOPIC, HOSTS_TOPIC (the last
# three: only where the settings name them), GROUP_ID, TRANSACTIONAL_ID, and the users as WORKER and OPERATOR.
set -eu

worker="${WORKER:-User:simhash-dedup}"
operator="${OPERATOR:-User:simhash-dedup-operator}"
input="${INPUT_TOPIC:-pages}"
verdicts="${VERDICT_TOPIC:-verdicts}"
letters="${DEAD_LETTER_TOPIC:-pages.dlq}"
unique="${UNIQUE_TOPIC:-}"
takedowns="${TAKEDOWN_TOPIC:-}"
hosts="${HOSTS_TOPIC:-}"
group="${GROUP_ID:-simhash-dedup}"
# Workers make theirs of group, host name and a number: so this is a prefix.
transactional="${TRANSACTIONAL_ID:-$group}"

connection="$*"
allow() { # PRINCIPAL, then what it may do
    principal="$1"
    shift
    # shellcheck disable=SC2086  # the connection's arguments are words of their own
    "${KAFKA_ACLS:-kafka-acls.sh}" $connection --add --force --allow-principal "$principal" "$@"
}
topics() { # an option for each topic; names of topics have no spaces
    for topic in "$@"; do echo "--topic $topic"; done
}

# shellcheck disable=SC2046,SC2086  # the topics' options are words of their own, and so are topics that may not be named
{
    # The worker reads pages, writes its answers, and looks at the topics' limits before it begins.
    allow "$worker" --operation Read --operation DescribeConfigs --topic "$input"
    allow "$worker" --operation Write --operation DescribeConfigs $(topics "$verdicts" "$letters" $unique)
    if [ "$takedowns" ]; then
        allow "$worker" --operation Describe --operation DescribeConfigs --topic "$takedowns"
    fi
    allow "$worker" --operation Read --group "$group"
    allow "$worker" --operation Write --operation Describe --transactional-id "$transactional" --resource-pattern-type prefixed

    # The operator makes the topics and reads them (verify, rebuild), publishes takedowns (index delete), sends dead letters
    # back to the input (dlq replay), sees whether workers run (index rewind, index accept), sets their group's offsets
    # (index resume), and keeps what is known of hosts (hosts).
    allow "$operator" --operation Create --operation Read --operation DescribeConfigs \
        $(topics "$input" "$verdicts" "$letters" $unique $takedowns $hosts)
    allow "$operator" --operation Write $(topics "$input" "$letters" $takedowns $hosts)
    allow "$operator" --operation Read --group "$group"
    allow "$operator" --operation Write --operation Describe --transactional-id "$transactional-dlq-replay" \
        ${hosts:+--transactional-id "$transactional-hosts"}
}
