"""What lies outside an application that hands something in: databases, Redis, files, HTTP, mails, datagrams."""

from __future__ import annotations

import pathlib
import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lib.servers import MariaDB, Redis

from .postgresql import PostgreSQL
from .sinks import Sinks

VISITORS = ["Ada", "Grace", "Joan", "Mary"]
TABLE = "CREATE TABLE arrivals (id {id}, name VARCHAR(200))"


@dataclass
class World:
    """What lies outside the application."""

    mariadb: MariaDB
    postgresql: PostgreSQL
    redis: Redis
    sinks: Sinks

    def redis_cli(self, *command: str) -> str:
        line = ["/usr/bin/redis-cli", "-s", str(self.redis.socket), *command]
        return subprocess.run(line, check=True, capture_output=True, text=True, timeout=60).stdout

    def env(self, out: pathlib.Path, hands_in: str, lazy: str) -> dict[str, str]:
        return {
            **self.sinks.env,
            "OUT": str(out),
            "HANDS_IN": hands_in,
            "LAZY": lazy,
            "REDIS": str(self.redis.socket),
            "MARIADB": str(self.mariadb.socket),
            "POSTGRESQL": str(self.postgresql.port),
        }

    def forget(self, out: pathlib.Path) -> None:
        """What warm-up requests and those before have handed in. Files stay: some are held open."""
        self.sinks.forget()
        for log in out.glob("*.log"):
            log.write_text("")
        self.redis_cli("FLUSHALL")
        self.mariadb.sql("DELETE FROM arrivals", self.mariadb.database)
        self.postgresql.sql("DELETE FROM arrivals")
        # Whoever needs these makes them.
        for table in ("messages", "cache_items", "lock_keys", "jobs", "cache"):
            self.mariadb.sql(f"DELETE FROM {table}", self.mariadb.database)
            self.postgresql.sql(f"DELETE FROM {table}")
        database = sqlite3.connect(out / "orm.db")
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE name IN ('arrivals', 'jobs', 'cache')").fetchall():
            database.execute(f"DELETE FROM {table}")
        database.commit()
        database.close()

    def arrived(self, out: pathlib.Path) -> dict[str, Counter[str]]:
        """By name: how often each visitor's arrived, "rolled back" and "never flushed" apart."""
        found = {name: Counter(count) for name, count in self.sinks.arrived.items()}
        for log in out.glob("*.log"):
            if log.stat().st_size:
                found[re.sub(r"-\d{4}-\d\d-\d\d$", "", log.stem)] = tally(log.read_text())
        for key in self.redis_cli("KEYS", "arrived:*").split():
            found[key.partition(":")[2]] = tally(self.redis_cli("LRANGE", key, "0", "-1"))
        if messages := tally(self.redis_cli("XRANGE", "symfony_messages", "-", "+")):
            found["symfony_messages"] = messages
        if queue := tally(self.redis_cli("LRANGE", "queues:laravel", "0", "-1")):
            found["laravel_queue_redis"] = queue
        database = sqlite3.connect(out / "orm.db")
        rows = {
            "orm_sqlite": "\n".join(name for (name,) in database.execute("SELECT name FROM arrivals")),
            "orm_mariadb": self.mariadb.sql("SELECT name FROM arrivals", self.mariadb.database),
            "orm_postgresql": self.postgresql.sql("SELECT name FROM arrivals"),
        }
        rows["messages_mariadb"] = self.mariadb.sql("SELECT body FROM messages", self.mariadb.database)
        rows["laravel_queue_database"] = self.mariadb.sql("SELECT payload FROM jobs", self.mariadb.database)
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone():
            rows["laravel_queue_database"] += "\n".join(job for (job,) in database.execute("SELECT payload FROM jobs"))
        database.close()
        found |= {name: count for name, text in rows.items() if (count := tally(text))}  # a message may have been taken
        return found


def tally(text: str) -> Counter[str]:
    return Counter(match[1] for match in re.finditer(r"of (\w+(?:, [a-z ]+)?)", text))


def make_tables(file: pathlib.Path) -> None:
    """What applications write to in SQLite."""
    database = sqlite3.connect(file)
    database.execute(TABLE.format(id="INTEGER PRIMARY KEY"))
    database.commit()
    database.close()
    file.chmod(0o666)


@contextmanager
def opened() -> Iterator[World]:
    """All servers started, their tables made."""
    with MariaDB() as mariadb, PostgreSQL() as postgresql, Redis() as redis, Sinks() as sinks:
        mariadb.sql(TABLE.format(id="INTEGER AUTO_INCREMENT PRIMARY KEY"), mariadb.database)
        postgresql.sql(TABLE.format(id="SERIAL PRIMARY KEY"))
        yield World(mariadb, postgresql, redis, sinks)
