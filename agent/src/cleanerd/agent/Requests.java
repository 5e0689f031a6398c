package cleanerd.agent;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;

/** Carries out the operations of the protocol (agent/README.md). */
final class Requests {
    static final int PROTOCOL = 1;

    private final Broker broker;
    private final AgentLog journal;
    private final Map<String, Object> identity;
    private final Pauses pauses;
    private final Results results = new Results();
    private final Set<String> busy = ConcurrentHashMap.newKeySet();
    private final Map<String, ReentrantLock> logDirs = new ConcurrentHashMap<>();
    private final AtomicInteger swaps = new AtomicInteger();
    private volatile boolean stopped;
    private volatile boolean closing;

    /** {@code identity}: the agent's own part of {@code info}. */
    Requests(Broker broker, AgentLog journal, Map<String, Object> identity) {
        this.broker = broker;
        this.journal = journal;
        this.identity = identity;
        this.pauses = new Pauses(journal);
    }

    /** Refuses new changes. Requests in progress continue. */
    void close() {
        closing = true;
    }

    /** Call this regularly. Tries to end the pauses that could not be ended before. Returns whether some remain. */
    boolean watch() {
        return pauses.tryAgain();
    }

    /** The answer to one line, never null. Every failure becomes an answer. */
    Map<String, Object> answer(String line, Session session) {
        Object id = null;
        Outcome outcome = new Outcome();
        try {
            Fields fields = new Fields(Json.read(line), "bad_request", "request");
            id = fields.id();
            Long version = fields.numberOrNull("v", Integer.MAX_VALUE);
            String op = fields.text("op");
            if (version == null || version != PROTOCOL) {
                throw new Refusal("unsupported", "this agent supports protocol version " + PROTOCOL
                        + ", the request has " + version);
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", id);
            answer.put("ok", true);
            answer.put("result", result(op, fields, session, outcome));
            return answer;
        } catch (Refusal e) {
            return refused(id, e.code(), e.getMessage(), outcome);
        } catch (IOException e) {
            journal.warn("I/O error: " + e);
            return refused(id, "io_error", e.toString(), outcome);
        } catch (RuntimeException e) {
            journal.warn("a request failed: " + e);
            return refused(id, "internal", e.toString(), outcome);
        } catch (Throwable e) { // for example no memory, or an incompatible class
            stopped = true;
            journal.warn("no more swaps after an unexpected error; restart the broker: " + e);
            return refused(id, "internal", e.toString(), outcome);
        }
    }

    static Map<String, Object> refused(Object id, String code, String text, Outcome outcome) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", id);
        answer.put("ok", false);
        answer.put("code", code);
        answer.put("error", text == null ? code : Fields.shortened(text, AgentLog.MOST_CHARACTERS));
        answer.put("done", outcome == null ? List.of() : outcome.done);
        if (outcome != null && !outcome.done.isEmpty()) {
            answer.put("outputs", outcome.outputs);
        }
        return answer;
    }

    private Object result(String op, Fields fields, Session session, Outcome outcome) throws IOException, Refusal {
        if (op.equals("info")) {
            fields.end();
            return info();
        }
        if (!broker.capable()) {
            throw new Refusal("incapable", broker.whyIncapable());
        }
        switch (op) {
            case "logs":
                return logs(fields);
            case "log":
                return log(fields);
            case "producers":
                return producers(fields);
            case "swap":
                return swap(fields, session, outcome);
            case "checkpoint":
                return checkpoint(fields);
            case "roll":
                return roll(fields);
            case "pause":
                return pause(fields, session);
            case "resume":
                return resume(fields, session);
            default:
                throw new Refusal("unsupported", "unknown operation '" + Fields.shortened(op) + "'");
        }
    }

    private Map<String, Object> info() throws IOException {
        Map<String, Object> answer = new LinkedHashMap<>(identity);
        answer.put("protocol", PROTOCOL);
        answer.put("ready", !broker.liveLogDirs().isEmpty());
        broker.describe(answer);
        answer.put("java", System.getProperty("java.version"));
        answer.put("pid", ProcessHandle.current().pid());
        answer.put("uptime_ms", ManagementFactory.getRuntimeMXBean().getUptime());
        answer.put("pauses", pauses.held());
        answer.put("failed_resumes", pauses.failed());
        answer.put("swaps", swaps.get());
        answer.put("accepting_swaps", broker.capable() && !stopped);
        answer.put("places", Server.MOST_CONNECTIONS);
        answer.put("errors", journal.errors());
        return answer;
    }

    private Map<String, Object> logs(Fields fields) throws IOException, Refusal {
        String prefix = fields.textOrNull("prefix");
        fields.end();
        List<Object> logs = new ArrayList<>();
        for (BrokerLog log : broker.logs()) {
            if (prefix == null || log.topic().startsWith(prefix)) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("topic", log.topic());
                row.put("partition", log.partition());
                row.put("topic_id", log.topicId());
                row.put("dir", log.dir());
                row.put("policy", log.setting("cleanup.policy"));
                logs.add(row);
            }
        }
        return Map.of("logs", logs);
    }

    private Map<String, Object> log(Fields fields) throws IOException, Refusal {
        BrokerLog log = partition(fields);
        fields.end();
        return LogAnswer.of(log);
    }

    private Map<String, Object> producers(Fields fields) throws IOException, Refusal {
        BrokerLog log = partition(fields);
        List<Long> ids = fields.numbers("ids");
        fields.end();
        return Map.of("active", log.producers(ids));
    }

    private Map<String, Object> swap(Fields fields, Session session, Outcome outcome) throws IOException, Refusal {
        if (stopped) {
            throw new Refusal("stopped", "the agent does not swap after an unexpected error; restart the broker");
        }
        SwapRequest request = SwapRequest.of(fields, digest(fields.allBut(Set.of("id", "witnesses", "aborted"))));
        String name = request.topic() + "-" + request.partition();
        enter(name);
        try {
            Map<String, Object> before = results.answerTo(request);
            if (before != null) {
                Map<String, Object> repeated = new LinkedHashMap<>(before);
                repeated.put("repeated", true);
                return repeated;
            }
            BrokerLog log = broker.log(request.topic(), request.partition());
            try {
                Evidence evidence = session.evidence(log, request);
                new Swap(log, request, evidence, outcome, lockOf(log)).run(pauses);
                session.remember(request, evidence);
            } finally {
                swaps.addAndGet(outcome.done.size());
                if (outcome.done.size() == request.groups().size() && !outcome.logDirFailed) {
                    results.store(request, outcome.toJson());
                }
            }
            journal.debug("swapped " + outcome.done.size() + " group(s) of " + name + " for plan " + request.plan());
            return outcome.toJson();
        } catch (Refusal e) {
            journal.warn("no swap of " + name + " for plan " + request.plan() + ": " + e.code() + ": " + e.getMessage());
            throw e;
        } finally {
            busy.remove(name);
        }
    }

    private Map<String, Object> checkpoint(Fields fields) throws IOException, Refusal {
        BrokerLog log = partition(fields);
        String topicId = fields.textOrNull("topic_id");
        String dir = fields.text("dir");
        long offset = fields.number("offset", Long.MAX_VALUE);
        SegmentFacts clean = fields.has("clean") ? SegmentFacts.of(fields.object("clean")) : null;
        fields.end();
        if (!log.dir().toString().equals(dir)) {
            throw new Refusal("log_changed", log + " is in " + log.dir() + ", the request has " + dir);
        }
        if (log.topicId() == null ? topicId != null : !log.topicId().equals(topicId)) {
            throw new Refusal("topic_id", "the topic id of " + log.topic() + " is " + log.topicId() + ", the request has "
                    + topicId);
        }
        String name = log.toString(); // once: later there may be no memory for it
        enter(name);
        try {
            Pauses.Pause pause = pauses.take(log);
            try {
                Checkpoint.write(log, offset, clean);
            } finally {
                pause.close();
            }
        } finally {
            busy.remove(name);
        }
        return Map.of("offset", offset);
    }

    /** the broker itself rolls an old segment at the next append. */
    private Map<String, Object> roll(Fields fields) throws IOException, Refusal {
        BrokerLog log = partition(fields);
        String topicId = fields.textOrNull("topic_id");
        String dir = fields.text("dir");
        long base = fields.number("base", Long.MAX_VALUE);
        fields.end();
        if (stopped) {
            throw new Refusal("stopped", "the agent changes nothing after an unexpected error; restart the broker");
        }
        String name = log.toString();
        enter(name);
        try {
            return log.underLock(() -> {
                Preconditions.checkLog(log, topicId, dir);
                return Map.of("base", log.roll(base));
            });
        } finally {
            busy.remove(name);
        }
    }

    private Map<String, Object> pause(Fields fields, Session session) throws IOException, Refusal {
        BrokerLog log = partition(fields);
        fields.end();
        String name = log.toString();
        enter(name);
        try {
            Pauses.Pause pause = pauses.take(log);
            try {
                session.add(name, pause);
            } catch (Throwable e) { // nothing else would end the pause
                pause.close();
                throw e;
            }
        } finally {
            busy.remove(name);
        }
        return Map.of("paused", true);
    }

    private Map<String, Object> resume(Fields fields, Session session) throws IOException, Refusal {
        BrokerLog log = partition(fields);
        fields.end();
        session.release(log.toString());
        return Map.of("paused", false);
    }

    private BrokerLog partition(Fields fields) throws IOException, Refusal {
        return broker.log(fields.text("topic"), (int) fields.number("partition", Integer.MAX_VALUE));
    }

    private void enter(String name) throws Refusal {
        if (closing) {
            throw new Refusal("busy", "another build of the agent is replacing this one; try again later");
        }
        if (!busy.add(name)) {
            throw new Refusal("busy", "another request for " + name + " is in progress; try again later");
        }
    }

    private ReentrantLock lockOf(BrokerLog log) throws IOException {
        return logDirs.computeIfAbsent(log.dir().getParent().toString(), dir -> new ReentrantLock());
    }

    private static String digest(Object content) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            return Hex.of(digest.digest(Json.write(content).getBytes(StandardCharsets.US_ASCII)));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
