package cleanerd.agent;

import java.util.HashMap;
import java.util.Map;

/** What belongs to one connection: pauses, and the evidence of its last plan. All end with it. Used by its worker only. */
final class Session implements AutoCloseable {
    private final Map<String, Pauses.Pause> pauses = new HashMap<>();
    private String plan;
    private Evidence evidence;

    /**
     * The evidence for a swap: new with the request's witnesses, else what its plan named before. It is forgotten unless
     * it is kept again: what a failed swap leaves has to be reported again.
     */
    Evidence evidence(BrokerLog log, SwapRequest request) throws Refusal {
        Evidence known = evidence;
        boolean fits = known != null && request.plan().equals(plan) && known.isOf(log);
        evidence = null;
        if (request.witnesses() != null) {
            known = new Evidence(log, request.witnesses());
        } else if (!fits) {
            throw new Refusal("no_evidence", "this connection has named no witnesses for plan " + request.plan());
        }
        known.take(request);
        return known;
    }

    /** All groups of {@code request} are in: the next request of its plan need not name the witnesses. */
    void keep(SwapRequest request, Evidence proven) {
        plan = request.plan();
        evidence = proven;
    }

    void keep(String partition, Pauses.Pause pause) {
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
