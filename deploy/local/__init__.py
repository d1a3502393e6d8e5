"""Kafka and Redis as local processes, for tests and a developer's desk, without containers.

Standard library only, so that it runs before anything is installed; `deploy/local/servers` is its command.

    installing     what the servers need: Debian packages through apt-get, Kafka's jars through Maven
    processes      one server process: started, recorded, waited for, signalled, stopped
    ports          free ports that no outgoing connection takes away
    brokers        Kafka on top of it
    stores         Redis on top of it, alone or as a small cluster
    cli            the command
"""
