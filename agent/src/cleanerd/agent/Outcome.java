package cleanerd.agent;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** How far a swap came; kept up to date while it runs, because what is done is reported after a refusal too. */
final class Outcome {
    final List<Long> done = new ArrayList<>();
    final List<Map<String, Object>> outputs = new ArrayList<>();
    final List<Long> heldUs = new ArrayList<>();
    final List<String> warnings = new ArrayList<>();
    long validateUs;
    long pauseUs;
    boolean checkpoint;
    /** Nothing is reported again of such an outcome: the log is gone, and what a start makes of it shows there. */
    boolean logDirFailed;

    Map<String, Object> toJson() {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("done", List.copyOf(done));
        json.put("outputs", List.copyOf(outputs));
        json.put("held_us", List.copyOf(heldUs));
        json.put("pause_us", pauseUs);
        json.put("validate_us", validateUs);
        json.put("checkpoint", checkpoint);
        json.put("warnings", List.copyOf(warnings));
        json.put("witnesses_kept", true); // so that a client knows an agent that does that
        return json;
    }
}
