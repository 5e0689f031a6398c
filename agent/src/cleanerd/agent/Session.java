package cleanerd.agent;

import java.util.HashMap;
import java.util.Map;

/** State of one connection: its pauses, and the evidence of its last plan. Only the connection's thread uses it. */
final class Session implements AutoCloseable {
    private final Map<String, Pauses.Pause> pauses = new HashMap<>();
    private String plan;
    private Evidence evidence;

    /**
     * The evidence for a swap: from the request's witnesses, otherwise from the earlier request of the same plan. It is
     * forgotten unless {@link #remember} follows: after a failed swap the client has to send the witnesses again.
     */
    Evidence evidence(BrokerLog log, SwapRequest request) throws Refusal {
        Evidence known = evidence;
        boolean fits = known != null && request.plan().equals(plan) && known.isOf(log);
        evidence = null;
        if (request.witnesses() != null) {
            known = new Evidence(log, request.witnesses());
        } else if (!fits) {
            throw new Refusal("no_evidence", "this connection has no witnesses for plan " + request.plan() + "; send them again");
        }
        known.use(request);
        return known;
    }

    /** All groups of {@code request} are swapped: the next request of its plan may omit the witnesses. */
    void remember(SwapRequest request, Evidence proven) {
        plan = request.plan();
        evidence = proven;
    }

    void add(String partition, Pauses.Pause pause) {
        pauses.put(partition, pause);
    }

    void release(String partition) throws Refusal {
        Pauses.Pause pause = pauses.remove(partition);
        if (pause == null) {
            throw new Refusal("busy", "this connection has not paused " + partition);
        }
        pause.close();
    }

    @Override
    public void close() {
        pauses.values().forEach(Pauses.Pause::close);
        pauses.clear();
    }
}
