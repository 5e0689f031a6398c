package cleanerd.agent;

import java.util.LinkedHashMap;
import java.util.Map;

/** What the last swaps came to, so that a repeated request gets the same answer. */
final class Results {
    private static final int KEPT = 1000;

    private static final class Result {
        private final String content;
        private final Map<String, Object> answer;

        Result(String content, Map<String, Object> answer) {
            this.content = content;
            this.answer = answer;
        }

        String content() {
            return content;
        }

        Map<String, Object> answer() {
            return answer;
        }
    }

    private final Map<String, Result> results = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Result> eldest) {
            return size() > KEPT;
        }
    };

    synchronized void keep(SwapRequest request, Map<String, Object> answer) {
        results.put(request.identity(), new Result(request.content(), answer));
    }

    /** The answer that the request got before, null when it is new; bad_plan when it says something else now. */
    synchronized Map<String, Object> of(SwapRequest request) throws Refusal {
        Result result = results.get(request.identity());
        if (result == null) {
            return null;
        }
        if (!result.content().equals(request.content())) {
            throw new Refusal("bad_plan", "this plan has swapped these groups before, by another request");
        }
        return result.answer();
    }
}
