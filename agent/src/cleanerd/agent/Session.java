package cleanerd.agent;

import java.util.HashMap;
import java.util.Map;

/** What belongs to one connection: pauses that end with it. Used by its worker only. */
final class Session implements AutoCloseable {
    private final Map<String, Pauses.Pause> pauses = new HashMap<>();

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
